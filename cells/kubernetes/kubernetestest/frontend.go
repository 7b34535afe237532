package kubernetestest

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Frontend answers requests for a [Server] at one address, in one network namespace. Several frontends of a server are
// the API servers of one cluster.
type Frontend struct {
	Kubeconfig string // file

	server *Server
	in     func(func() error) error
	addr   string

	mu      sync.Mutex // guards the fields below
	web     *http.Server
	running chan struct{} // closed while connections carry data
}

// ServeIn answers requests at an address in the namespace that in enters, until the test ends. "127.0.0.1:0" chooses a
// port.
func (s *Server) ServeIn(t testing.TB, in func(func() error) error, addr string) *Frontend {
	t.Helper()
	f := &Frontend{server: s, in: in, addr: addr, running: make(chan struct{})}
	close(f.running)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	f.Kubeconfig = Kubeconfig(t, f.URL())
	return f
}

// URL is where clients in the namespace reach it.
func (f *Frontend) URL() string { return "http://" + f.addr }

// Start listens again after Stop, at the same address.
func (f *Frontend) Start() error {
	var listener net.Listener
	if err := f.in(func() (err error) { listener, err = net.Listen("tcp", f.addr); return err }); err != nil {
		return err
	}
	web := &http.Server{Handler: f.server, ReadHeaderTimeout: time.Minute}
	f.mu.Lock()
	f.addr, f.web = listener.Addr().String(), web
	f.mu.Unlock()
	go func() { _ = web.Serve(hangingListener{listener, f}) }()
	return nil
}

// Stop ends all connections, as when the API server is killed. The objects stay.
func (f *Frontend) Stop() {
	f.mu.Lock()
	web := f.web
	f.mu.Unlock()
	_ = web.Close()
}

// Hang keeps all connections, accepts new ones, and lets no data through until Resume, as a process that is stopped.
func (f *Frontend) Hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = make(chan struct{})
}

// Resume ends Hang. Data that has waited is sent.
func (f *Frontend) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.running)
}

// wait returns when connections carry data, or the connection is closed.
func (f *Frontend) wait(closed <-chan struct{}) {
	f.mu.Lock()
	running := f.running
	f.mu.Unlock()
	select {
	case <-running:
	case <-closed:
	}
}

type hangingListener struct {
	net.Listener
	frontend *Frontend
}

func (l hangingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hangingConn{Conn: conn, frontend: l.frontend, closed: make(chan struct{})}, nil
}

type hangingConn struct {
	net.Conn
	frontend *Frontend
	close    sync.Once
	closed   chan struct{}
}

func (c *hangingConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	c.frontend.wait(c.closed)
	return n, err
}

func (c *hangingConn) Write(data []byte) (int, error) {
	c.frontend.wait(c.closed)
	return c.Conn.Write(data)
}

func (c *hangingConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
