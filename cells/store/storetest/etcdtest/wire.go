package etcdtest

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"porin.dev/porin/cells/store"
)

// Wire is a way to an etcd that can hang: connections are made and stay, and nothing comes of them, as with a process that
// is stopped or a disk that does not answer.
type Wire struct {
	dir      string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	flows chan struct{}
	conns []net.Conn
}

// Wire returns one, until the test ends.
func (s *Server) Wire(t testing.TB) *Wire {
	t.Helper()
	w := &Wire{dir: s.dir, flows: closed()}
	var err error
	if w.listener, err = net.Listen("unix", w.path()); err != nil {
		t.Fatal(err)
	}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.Resume()
		w.Cut()
		w.running.Wait()
	})
	return w
}

func (w *Wire) path() string { return filepath.Join(w.dir, "wire") }

// Config is the etcd's, over the wire.
func (w *Wire) Config(cfg store.Config) store.Config {
	cfg.Etcd.Endpoints = []string{"unix://" + w.path()}
	return cfg
}

// Hang lets nothing through until Resume.
func (w *Wire) Hang() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows = make(chan struct{})
}

// Resume lets through what has waited, too.
func (w *Wire) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.flows:
	default:
		close(w.flows)
	}
}

// Cut ends all connections. New ones are made.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

func (w *Wire) flowing() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flows
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", filepath.Join(w.dir, "client"))
		if err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, near, far)
		w.mu.Unlock()
		w.running.Go(func() { w.pass(near, far) })
		w.running.Go(func() { w.pass(far, near) })
	}
}

// pass ends with either side.
func (w *Wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		<-w.flowing()
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
