package httpproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/proxytest"
)

// request is the shortest there is.
const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// anything are rules that allow every request.
var anything = []model.HTTPRule{{}}

// proxy is a listener whose connections are served by sessions, in front of one server.
type proxy struct {
	t        testing.TB
	listener net.Listener
	server   string // address of the server
	rules    atomic.Pointer[Rules]
	limits   Limits
	dials    atomic.Int32
	cancel   context.CancelFunc
	quiet    bool                 // nothing is recorded
	dialed   func(net.Conn) error // unless nil, a dial calls it when it is connected
	memory   bufconn.Memory
	served   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	records  []Record
	errs     []error
	sessions []*Session
}

// newProxy starts a proxy that allows everything.
func newProxy(t testing.TB, server string, limits Limits) *proxy {
	t.Helper()
	return startProxy(t, &proxy{server: server, limits: limits})
}

// newQuietProxy starts a proxy that records nothing.
func newQuietProxy(t testing.TB, server string) *proxy {
	t.Helper()
	return startProxy(t, &proxy{server: server, quiet: true})
}

func startProxy(t testing.TB, p *proxy) *proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p.t, p.listener, p.cancel = t, proxytest.Listen(t), cancel
	p.allow(model.HTTPRule{})
	go func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			s := p.session(c)
			p.mu.Lock()
			p.sessions = append(p.sessions, s)
			p.served.Go(func() {
				err := s.Serve(ctx)
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errs = append(p.errs, err)
			})
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		p.listener.Close()
		cancel()
		p.served.Wait()
	})
	return p
}

func (p *proxy) session(c net.Conn) *Session {
	s := &Session{
		Client: c,
		Dial: func(ctx context.Context) (net.Conn, error) {
			p.dials.Add(1)
			c, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
			if err == nil && p.dialed != nil {
				err = p.dialed(c)
			}
			return c, err
		},
		Decide: func(r *Request) Reason { return p.rules.Load().Decide(r) },
		Limits: p.limits, Memory: p.memory,
	}
	if !p.quiet {
		s.Record = func(r Record) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.records = append(p.records, r)
		}
	}
	return s
}

func (p *proxy) allow(rules ...model.HTTPRule) {
	p.t.Helper()
	compiled, err := Compile(rules)
	if err != nil {
		p.t.Fatal(err)
	}
	p.rules.Store(compiled)
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// recorded returns what was recorded so far.
func (p *proxy) recorded() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Record(nil), p.records...)
}

func (p *proxy) expectRecords(want ...Record) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.recorded()); diff != "" {
		p.t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// ended waits for the end of n sessions, and returns what Serve returned.
func (p *proxy) ended(n int) []error {
	p.t.Helper()
	var errs []error
	proxytest.Eventually(p.t, "sessions end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		errs = append([]error(nil), p.errs...)
		return len(errs) >= n
	})
	return errs
}

// httpServer starts a server of net/http.
func httpServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l := proxytest.Listen(t)
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// rawServer starts a server that calls serve for each connection, and closes it then.
func rawServer(t testing.TB, serve func(c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	l := proxytest.Listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn), bufio.NewReader(c))
			}()
		}
	}()
	return l.Addr().String()
}

// client is a connection to the proxy on which a test writes by itself.
type client struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (p *proxy) dial() *client {
	p.t.Helper()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return &client{TCPConn: c.(*net.TCPConn), t: p.t, r: bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// response reads one whole response to a request of the method.
func (c *client) response(method string) (*http.Response, string) {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	p, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("read response: %v", err)
	}
	body, err := io.ReadAll(p.Body)
	if err != nil {
		c.t.Fatalf("read body of response: %v", err)
	}
	return p, string(body)
}

// expect reads one response, and checks its status and body.
func (c *client) expect(status int, body string) *http.Response {
	c.t.Helper()
	p, got := c.response("GET")
	if p.StatusCode != status || !strings.Contains(got, body) {
		c.t.Fatalf("got %d %q, want %d %q", p.StatusCode, got, status, body)
	}
	return p
}

// rest reads to the end of the stream.
func (c *client) rest() (string, error) {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	b, err := io.ReadAll(c.r)
	return string(b), err
}

// expectEnd checks that nothing else comes, and that the stream ends in order.
func (c *client) expectEnd() {
	c.t.Helper()
	if rest, err := c.rest(); rest != "" || err != nil {
		c.t.Fatalf("after the response: %q, %v; want the end of the stream", rest, err)
	}
}
