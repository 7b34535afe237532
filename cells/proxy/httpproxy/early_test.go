package httpproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/proxytest"
)

const (
	banner  = "SSH-2.0-OpenSSH_9.2\r\n"
	timeout = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"
	request = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
	answer  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// soon has the server be dialled at once.
var soon = Limits{ServerFirst: time.Millisecond}

func (p *proxy) expectRecords(want ...Record) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.recorded()); diff != "" {
		p.t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func (p *proxy) awaitDial() {
	p.t.Helper()
	proxytest.Eventually(p.t, "the server is dialled", func() bool { return p.dials.Load() > 0 })
}

func TestServerSpeaksFirst(t *testing.T) {
	for _, said := range []string{banner, "220 mail ESMTP\r\n", "\x4a\x00\x00\x00\x0a8.0", "\xff\xfd\x18", "H", "HELLO", "\x00\x00\x04\x04\x00\x00\x00\x00\x01"} {
		t.Run(said, func(t *testing.T) {
			p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
				io.WriteString(c, said)
				if said == "H" {
					time.AfterFunc(10*time.Millisecond, func() { io.WriteString(c, "i") })
				}
				io.Copy(io.Discard, r)
			}), soon)
			began := time.Now()
			c := p.dial()
			text, err := c.rest()
			if err != nil || !strings.HasPrefix(text, "HTTP/1.1 502 ") || !strings.Contains(text, "speaks first") || strings.Contains(text, said+"\n") {
				t.Errorf("the client got %q, %v", text, err)
			}
			c.Close()
			p.ended(1)
			if took := time.Since(began); took > DefaultLimits().FirstByte/2 {
				t.Errorf("took %s", took)
			}
			p.expectRecords(Record{Status: 502, Verdict: Refused, Reason: ReasonServerFirst})
		})
	}
}

// TestDialledServerSpeaksOrCloses has a server, dialled for a request, that says something before it can have read that, or closes. The
// client gets 502.
func TestDialledServerSpeaksOrCloses(t *testing.T) {
	for _, said := range []string{banner, ""} {
		p := startProxy(t, &proxy{dialed: proxytest.WaitForData, server: rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
			io.WriteString(c, said)
			c.CloseWrite()
			io.Copy(io.Discard, r)
		})})
		for range 500 {
			c := p.dial()
			c.send(request)
			c.expect(502, "")
			c.Close()
		}
	}
}

// TestServerSpeaksFirstLate has the server speak when the client has begun its request.
func TestServerSpeaksFirstLate(t *testing.T) {
	speak := make(chan struct{})
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		<-speak
		io.WriteString(c, banner)
		io.Copy(io.Discard, r)
	}), soon)
	c := p.dial()
	p.awaitDial()
	c.send(request[:5])
	proxytest.Eventually(t, "the request has begun", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		s := p.sessions[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.begun
	})
	close(speak)
	proxytest.Eventually(t, "the server speaks", p.sessions[0].early.hasSpoken)
	c.send(request[5:])
	c.expect(http.StatusBadGateway, "speaks first")
	c.expectEnd()
	p.expectRecords(Record{Method: "GET", Host: "h", Path: "/x", Status: 502, Verdict: Failed, Reason: ReasonServerFirst})
}

// TestSlowClient has a client that is silent for a while, and servers that do what they may do with a connection without a request.
func TestSlowClient(t *testing.T) {
	for _, row := range []struct {
		name  string
		first func(c *net.TCPConn, r *bufio.Reader) (goesOn bool) // what the server does with its first connection
		conns int32
	}{
		{"the server waits", func(*net.TCPConn, *bufio.Reader) bool { return true }, 1},
		{"the server closes it", func(*net.TCPConn, *bufio.Reader) bool { return false }, 2},
		{"the server resets it", func(c *net.TCPConn, _ *bufio.Reader) bool { c.SetLinger(0); return false }, 2},
		{"the server says that it waits no longer", func(c *net.TCPConn, _ *bufio.Reader) bool { io.WriteString(c, timeout); return false }, 2},
		{"the server says half of that", func(c *net.TCPConn, r *bufio.Reader) bool { io.WriteString(c, "HTTP"); return false }, 2},
		{"the server says how it speaks HTTP/2", func(c *net.TCPConn, r *bufio.Reader) bool {
			c.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100})
			io.Copy(io.Discard, r) // until the proxy closes it
			return false
		}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			var conns atomic.Int32
			did := make(chan struct{})
			p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
				if conns.Add(1) == 1 && !row.first(c, r) {
					c.Close()
					close(did)
					return
				}
				if conns.Load() == 1 {
					close(did)
				}
				for {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					io.WriteString(c, answer)
				}
			}), soon)
			c := p.dial()
			<-did
			for range 2 {
				c.send(request)
				c.expect(http.StatusOK, "ok")
			}
			if got := conns.Load(); got != row.conns {
				t.Errorf("%d connections to the server, want %d", got, row.conns)
			}
			forwarded := Record{Method: "GET", Host: "h", Path: "/x", Status: 200, Verdict: Forwarded}
			p.expectRecords(forwarded, forwarded)
			c.Close()
			p.ended(1)
		})
	}
}

// TestSilentClient closes the connection to the server when the client has sent nothing at all.
func TestSilentClient(t *testing.T) {
	closed := make(chan struct{})
	p := newProxy(t, rawServer(t, func(_ *net.TCPConn, r *bufio.Reader) {
		io.Copy(io.Discard, r)
		close(closed)
	}), Limits{ServerFirst: time.Millisecond, FirstByte: 100 * time.Millisecond})
	c := p.dial()
	c.expect(http.StatusRequestTimeout, "sent no request")
	c.Close()
	<-closed
	p.ended(1)
	p.expectRecords(Record{Status: 408, Verdict: Refused, Reason: ReasonSilent})
}

// TestEarlyDialFails: it is tried again with the request.
func TestEarlyDialFails(t *testing.T) {
	l := proxytest.Listen(t)
	l.Close()
	p := newProxy(t, l.Addr().String(), soon)
	c := p.dial()
	p.awaitDial()
	c.send(request)
	c.expect(http.StatusServiceUnavailable, "cannot be reached")
	if n := p.dials.Load(); n != 2 {
		t.Errorf("%d dials, want two", n)
	}
}

// TestEarlyDialSlow has the request, or the end, come while the server is dialled.
func TestEarlyDialSlow(t *testing.T) {
	server := httpServer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	for _, goesOn := range []bool{true, false} {
		dialling, dial := make(chan struct{}), make(chan struct{})
		here, there := net.Pipe()
		s := &Session{Client: here, Decide: func(*Request) Reason { return "" }, Limits: soon, Dial: func(ctx context.Context) (net.Conn, error) {
			close(dialling)
			select {
			case <-dial:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return new(net.Dialer).DialContext(ctx, "tcp", server)
		}}
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context()) }()
		<-dialling
		if goesOn {
			io.WriteString(there, request)
			close(dial)
			if response, err := http.ReadResponse(bufio.NewReader(there), nil); err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("response %v, %v", response, err)
			}
		}
		there.Close()
		select {
		case <-served:
		case <-time.After(5 * time.Second):
			t.Fatal("the session does not end")
		}
	}
}

// TestEarlyDenied: a client that has sent a request has nothing dialled that no rule allows.
func TestEarlyDenied(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1", Limits{ServerFirst: 50 * time.Millisecond, Idle: 200 * time.Millisecond})
	p.rules.Store(&Rules{})
	c := p.dial()
	c.send(request)
	c.expect(http.StatusForbidden, "")
	c.expectEnd()
	if n := p.dials.Load(); n != 0 {
		t.Errorf("%d dials, want none", n)
	}
}

// TestEarlyHTTP2 closes the connection when another protocol takes over.
func TestEarlyHTTP2(t *testing.T) {
	closed := make(chan struct{})
	server := rawServer(t, func(_ *net.TCPConn, r *bufio.Reader) {
		io.Copy(io.Discard, r)
		close(closed)
	})
	here, there := net.Pipe()
	dialled := make(chan struct{})
	s := &Session{
		Client: here, Decide: func(*Request) Reason { return "" }, Limits: soon,
		Dial: func(ctx context.Context) (net.Conn, error) {
			defer close(dialled)
			return new(net.Dialer).DialContext(ctx, "tcp", server)
		},
		HTTP2: func(_ context.Context, c *bufconn.Conn) error { <-closed; return c.Close() },
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	<-dialled
	io.WriteString(there, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if err := <-served; err != nil {
		t.Error(err)
	}
	there.Close()
}
