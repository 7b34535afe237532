package httpproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/proxytest"
)

func TestPipelining(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Path: "/a.*"})
	c := p.dial()
	c.send(strings.Repeat("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", 50))
	c.CloseWrite()
	for range 50 {
		c.expect(200, "GET h /a ")
		c.expect(403, "")
		c.expect(200, "POST h /a abc")
	}
	c.expectEnd()
}

// TestPolicyChange: each request is decided about by the rules of its own time.
func TestPolicyChange(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := p.dial()
	for i := range 10 {
		status := 200
		p.allow(model.HTTPRule{Method: "GET"})
		if i%2 == 1 {
			status = 403
			p.allow(model.HTTPRule{Method: "POST"})
		}
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		c.expect(status, "")
	}
	p.rules.Store(nil)
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.expect(403, "")
}

func TestHTTP10(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	for _, head := range []string{"", "Connection: keep-alive\r\n"} {
		c := p.dial()
		c.send("GET /a HTTP/1.0\r\n" + head + "\r\n")
		if answer := c.expect(200, "GET  /a "); !answer.Close {
			t.Error("the client is not told of the end")
		}
		c.expectEnd()
	}
	p.allow(model.HTTPRule{Host: "h"})
	c := p.dial()
	c.send("GET /a HTTP/1.0\r\n\r\n")
	c.expect(403, "")
	c.expectEnd()
}

// TestHalfClose: the end of the client's stream is passed on, and the response still delivered.
func TestHalfClose(t *testing.T) {
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "\r\n\r\nabc") {
			t.Errorf("the server read %q, %v", rest, err)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\ndone")
	}), Limits{})
	c := p.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
	c.CloseWrite()
	c.expect(200, "done")
	c.expectEnd()
	if errs := p.ended(1); errs[0] != nil {
		t.Errorf("Serve returned %v", errs[0])
	}
}

// TestStreaming: both bodies are under way at the same time, and arrive piece by piece.
func TestStreaming(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		if err := out.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		for b := make([]byte, 1); ; {
			if _, err := r.Body.Read(b); err != nil {
				break
			}
			w.Write(b)
			out.Flush()
		}
		if got := r.Trailer.Get("X-Sum"); got != "7" {
			t.Errorf("trailer of the request: %q", got)
		}
		w.Header().Set(http.TrailerPrefix+"X-End", "yes")
	}), Limits{})
	pieces, body := io.Pipe()
	request, err := http.NewRequest("POST", p.url(), pieces)
	if err != nil {
		t.Fatal(err)
	}
	request.Trailer = http.Header{"X-Sum": {"7"}}
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	go io.WriteString(body, "a")
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b := make([]byte, 1)
	for i, want := range "abcdefg" {
		if i > 0 {
			io.WriteString(body, string(want))
		}
		if _, err := io.ReadFull(answer.Body, b); err != nil || b[0] != byte(want) {
			t.Fatalf("got %q, %v; want %q", b, err, want)
		}
	}
	body.Close()
	if rest, err := io.ReadAll(answer.Body); len(rest) > 0 || err != nil || answer.Trailer.Get("X-End") != "yes" {
		t.Errorf("at the end: %q, %v, trailers %v", rest, err, answer.Trailer)
	}
}

// TestLongBodies are moved in the kernel between the connections.
func TestLongBodies(t *testing.T) {
	const size = 32<<20 + 7
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if n != size || err != nil {
			t.Errorf("the server read %d bytes, %v", n, err)
		}
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "33554439")
		}
		io.CopyN(w, zeros{}, size)
	}), Limits{})
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for _, path := range []string{"/length", "/chunked"} {
		request, err := http.NewRequest("POST", p.url()+path, io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		if path == "/length" {
			request.ContentLength = size
		}
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, answer.Body); n != size || err != nil {
			t.Errorf("%s: the client read %d bytes, %v", path, n, err)
		}
		answer.Body.Close()
	}
}

func TestExpectContinue(t *testing.T) {
	server := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reads" {
			echo(w, r)
			return
		}
		t.Errorf("a request for %s", r.URL.Path)
	})
	p := newProxy(t, server, Limits{})
	p.allow(model.HTTPRule{Path: "/reads|/refuses"})
	const head = " HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n"
	t.Run("continue", func(t *testing.T) {
		c := p.dial()
		for range 2 {
			c.send("POST /reads" + head)
			c.expect(100, "")
			c.send("abc")
			c.expect(200, "POST h /reads abc")
		}
	})
	t.Run("body at once", func(t *testing.T) {
		c := p.dial()
		c.send("POST /reads" + head + "abc")
		for {
			if answer, body := c.response("POST"); answer.StatusCode == 200 {
				if body != "POST h /reads abc" {
					t.Errorf("got %q", body)
				}
				break
			}
		}
	})
	refusing := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if q.URL.Path == "/reads" {
				if body, err := io.ReadAll(q.Body); err != nil || string(body) != "abc" {
					t.Errorf("the server read %q, %v", body, err)
				}
				io.WriteString(c, okEmpty)
				continue
			}
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		}
	}), Limits{})
	refusing.allow(model.HTTPRule{Path: "/reads|/refuses"})
	t.Run("body at once, and a server that sends no 100", func(t *testing.T) {
		c := refusing.dial()
		for range 3 {
			c.send("POST /reads" + head + "abc")
			c.expect(200, "")
		}
	})
	// What follows could be the body or the next request.
	for _, path := range []string{"/refuses", "/denied"} {
		t.Run(path, func(t *testing.T) {
			c := refusing.dial()
			c.send("POST " + path + head)
			answer, _ := c.response("POST")
			if !answer.Close || answer.StatusCode < 400 {
				t.Errorf("got %d, close %v", answer.StatusCode, answer.Close)
			}
			c.send("GET /reads HTTP/1.1\r\nHost: h\r\n\r\n")
			c.expectEnd()
		})
	}
}

// TestEarlyResponse: a server answers and closes before it has read the body.
func TestEarlyResponse(t *testing.T) {
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			t.Error(err)
		}
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbig\n")
	}), Limits{})
	c := p.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000))
	if answer := c.expect(413, "big"); !answer.Close {
		t.Error("the client is not told of the end")
	}
	c.expectEnd()
}

// TestDeniedBody: a short body is dropped, and a long or unknown one ends the connection.
func TestDeniedBody(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{Discard: 1000})
	p.allow(model.HTTPRule{Method: "GET"})
	for _, tt := range []struct {
		name, head, body string
		ends             bool
	}{
		{"short", "Content-Length: 1000", strings.Repeat("x", 1000), false},
		{"long", "Content-Length: 1001", strings.Repeat("x", 1001), true},
		{"chunked", "Transfer-Encoding: chunked", "0\r\n\r\n", true},
		{"closing", "Connection: close\r\nContent-Length: 0", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := p.dial()
			c.send("POST / HTTP/1.1\r\nHost: h\r\n" + tt.head + "\r\n\r\n")
			if answer := c.expect(403, ""); answer.Close != tt.ends {
				t.Errorf("close %v, want %v", answer.Close, tt.ends)
			}
			c.send(tt.body + "GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
			if tt.ends {
				c.expectEnd()
			} else {
				c.expect(200, "/next")
			}
		})
	}
	t.Run("sent after the answer", func(t *testing.T) {
		p := newProxy(t, httpServer(t, echo), Limits{Discard: 1000, Linger: 20 * time.Second})
		p.rules.Store(nil)
		c := p.dial()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n")
		c.expect(403, "")
		for range 300 {
			c.send(strings.Repeat("x", 1000)) // no error, with which clients forget the answer
		}
		c.CloseWrite()
		c.expectEnd()
	})
	t.Run("HEAD", func(t *testing.T) {
		c := p.dial()
		c.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
		if answer, _ := c.response("HEAD"); answer.StatusCode != 403 {
			t.Errorf("got %d", answer.StatusCode)
		}
		c.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
		c.expect(200, "/next")
	})
}

// TestUpgrade: after 101 both directions are copied, each until its own end.
func TestUpgrade(t *testing.T) {
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		q, err := http.ReadRequest(r)
		if err != nil || q.Header.Get("Upgrade") != "websocket" {
			t.Errorf("the server read %v, %v", q, err)
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\nhello ")
		got, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		c.Write(got)
	}), Limits{})
	p.allow(model.HTTPRule{Path: "/ws", Headers: []model.HTTPHeader{{Name: "X-Role", Value: "a"}}})
	const head = "Host: h\r\nX-Role: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	c := p.dial()
	c.send("GET /other HTTP/1.1\r\n" + head)
	c.expect(403, "")
	// The bytes that the client sends ahead are no request.
	c.send("GET /ws HTTP/1.1\r\n" + head + "GET / HTTP/1.1\r\n\r\n")
	if answer, err := http.ReadResponse(c.r, nil); err != nil || answer.StatusCode != 101 || answer.Header.Get("Upgrade") != "WebSocket" {
		t.Fatalf("got %v, %v", answer, err)
	}
	long := strings.Repeat("\x00GET / HTTP/1.1\r\n", 100000)
	c.send(long)
	c.CloseWrite()
	got, err := c.rest()
	if want := "hello GET / HTTP/1.1\r\n\r\n" + long; got != want || err != nil {
		t.Errorf("the client read %d bytes, %v; want %d", len(got), err, len(want))
	}
	if errs := p.ended(1); errs[0] != nil {
		t.Errorf("Serve returned %v", errs[0])
	}
	want := []Record{
		{Method: "GET", Host: "h", Path: "/other", Status: 403, Verdict: Denied, Reason: ReasonNoRule},
		{Method: "GET", Host: "h", Path: "/ws", Status: 101, Verdict: Forwarded},
	}
	if d := cmp.Diff(want, p.recorded()); d != "" {
		t.Error(d)
	}
}

// TestUpgradeRefused: the server stays with HTTP/1.1, and so does the connection.
func TestUpgradeRefused(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := p.dial()
	for _, protocol := range []string{"websocket", "h2c"} {
		c.send("GET /1 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
		c.expect(200, "/1")
		c.expect(200, "/2")
	}
}

func TestOtherProtocols(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		reason     Reason
		status     int
	}{
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00", ReasonTLS, 400},
		{"binary", "\x00\x01", ReasonRequestLine, 400},
		{"CONNECT", "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", ReasonConnect, 405},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", ReasonHTTP2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, httpServer(t, echo), Limits{})
			c := p.dial()
			c.send(tt.text)
			got, err := c.rest()
			if err != nil {
				t.Errorf("the client read %q, %v", got, err)
			}
			if tt.status == 0 {
				if want := "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x37\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0d"; !strings.HasPrefix(got, want) {
					t.Errorf("the client read %q, want SETTINGS and GOAWAY", got)
				}
			} else if answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil); err != nil || answer.StatusCode != tt.status {
				t.Errorf("the client read %q", got)
			}
			if got := p.recorded(); len(got) != 1 || got[0].Reason != tt.reason || got[0].Status != tt.status || got[0].Verdict != Refused {
				t.Errorf("recorded: %v", got)
			}
			if n := p.dials.Load(); n != 0 {
				t.Error("the server was dialled")
			}
		})
	}
}

func TestDialFails(t *testing.T) {
	l := proxytest.Listen(t)
	l.Close()
	p := newProxy(t, l.Addr().String(), Limits{})
	c := p.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.expect(503, "cannot be reached")
	c.expectEnd()
	c.Close()
	if errs := p.ended(1); !errors.Is(errs[0], syscall.ECONNREFUSED) {
		t.Errorf("Serve returned %v", errs[0])
	}
	if got := p.recorded(); len(got) != 1 || got[0].Reason != ReasonDial || got[0].Status != 503 || got[0].Verdict != Failed {
		t.Errorf("recorded: %v", got)
	}
}

// TestClientGone: the server sees the end of a client that waits for a response, or that left out a part of its body.
func TestClientGone(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		reset      bool
		reason     Reason
	}{
		{"waits", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false, ""},
		{"waits, and is reset", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", true, ReasonClientGone},
		{"in the body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", false, ReasonIncompleteBody},
		{"in the body, and is reset", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", true, ReasonClientGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arrived, gone := make(chan bool), make(chan error, 1)
			p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					t.Error(err)
				}
				close(arrived)
				_, err := io.Copy(io.Discard, r)
				gone <- err
			}), Limits{})
			c := p.dial()
			c.send(tt.text)
			<-arrived
			if tt.reset {
				c.SetLinger(0)
			}
			c.Close()
			err := <-gone
			if whole := tt.reason == ""; whole != (err == nil) {
				t.Errorf("the server read the end as %v", err)
			}
			p.ended(1)
			if tt.reason == "" {
				tt.reason = ReasonServerClosed // it went in turn, without an answer
			}
			if got := p.recorded(); len(got) != 1 || got[0].Reason != tt.reason || got[0].Verdict != Failed {
				t.Errorf("recorded: %v", got)
			}
		})
	}
}

// TestServerClosesBetweenRequests: the client is closed as well, and a request that the server did not see gets no
// answer of ours.
func TestServerClosesBetweenRequests(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{})
		c := p.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		server.answer <- okEmpty + thenClose
		c.expect(200, "")
		c.expectEnd()
		if errs := p.ended(1); errs[0] != nil {
			t.Errorf("Serve returned %v", errs[0])
		}
	})
	t.Run("with a request under way", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{})
		c := p.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		server.answer <- okEmpty
		c.expect(200, "")
		c.send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		server.answer <- thenClose
		c.expectEnd()
		if got := p.recorded(); len(got) != 2 || got[1] != (Record{Method: "GET", Host: "h", Path: "/2", Verdict: Failed, Reason: ReasonServerClosed}) {
			t.Errorf("recorded: %v", got)
		}
	})
}

func TestDrain(t *testing.T) {
	drain := func(p *proxy) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.sessions {
			s.Drain()
		}
	}
	t.Run("between requests", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{DrainIdle: time.Millisecond})
		c := p.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		server.answer <- okEmpty
		c.expect(200, "")
		drain(p)
		c.expectEnd()
		c.Close()
		if errs := p.ended(1); errs[0] != nil {
			t.Errorf("Serve returned %v", errs[0])
		}
	})
	t.Run("during a request", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{})
		c := p.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		drain(p)
		server.answer <- okEmpty
		if answer := c.expect(200, ""); !answer.Close {
			t.Error("the client is not told of the end")
		}
		c.expectEnd()
	})
	t.Run("before the first request", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{})
		c := p.dial()
		proxytest.Eventually(t, "the session waits", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.sessions) != 1 {
				return false
			}
			s := p.sessions[0]
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.waiting
		})
		drain(p)
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-server.got
		server.answer <- okEmpty
		if answer := c.expect(200, ""); !answer.Close {
			t.Error("the client is not told of the end")
		}
		c.expectEnd()
	})
	t.Run("before the next request", func(t *testing.T) {
		server := newCatcher(t, "\r\n\r\n")
		p := newProxy(t, server.address, Limits{DrainIdle: time.Hour})
		c := p.dial()
		for i, last := range []bool{false, true} {
			c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			<-server.got
			server.answer <- okEmpty
			if answer := c.expect(200, ""); answer.Close != last {
				t.Errorf("response %d tells of the end: %v", i, answer.Close)
			}
			drain(p)
		}
		c.expectEnd()
	})
	t.Run("before Serve", func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		s := &Session{Client: here, Decide: (*Rules)(nil).Decide, Limits: Limits{FirstByte: time.Millisecond}}
		s.Drain()
		go io.Copy(io.Discard, there)
		if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), string(ReasonSilent)) {
			t.Errorf("Serve returned %v, want that the client is silent", err)
		}
	})
}

// TestStop: the end of Serve's context ends whatever is under way.
func TestStop(t *testing.T) {
	for name, text := range map[string]string{
		"idle": "", "head": "GET /", "response": "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "body": "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n",
		"tunnel": "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
				http.ReadRequest(r)
				if name == "tunnel" {
					io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
				}
				io.Copy(io.Discard, r)
			}), Limits{})
			c := p.dial()
			c.send(text)
			if name == "tunnel" {
				http.ReadResponse(c.r, nil)
			} else if name != "idle" && name != "head" {
				proxytest.Eventually(t, "the server is dialled", func() bool { return p.dials.Load() == 1 })
			}
			proxytest.Eventually(t, "the session is there", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.sessions) == 1
			})
			p.cancel()
			if errs := p.ended(1); !errors.Is(errs[0], context.Canceled) {
				t.Errorf("Serve returned %v", errs[0])
			}
			if _, err := c.rest(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client read %v, want a reset", err)
			}
		})
	}
}

// TestSlowReader: a response goes no faster than the client reads it, and costs no memory meanwhile.
func TestSlowReader(t *testing.T) {
	const size = 64 << 20
	written := make(chan int64, 1)
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		http.ReadRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
		c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, _ := io.CopyN(c, zeros{}, size)
		written <- n
	}), Limits{})
	c := p.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if n := <-written; n == size {
		t.Errorf("the server wrote all %d bytes, and nobody read them", n)
	}
}
