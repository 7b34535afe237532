package httpproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/proxytest"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
}

func TestManyRequestsOnOneConnection(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := p.dial()
	for i := range 10000 {
		body := strings.Repeat("x", i%100)
		c.send(fmt.Sprintf("POST /%d?q HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body))
		if _, got := c.response("POST"); got != fmt.Sprintf("POST a /%d?q %s", i, body) {
			t.Fatalf("request %d: got %q", i, got)
		}
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections to the server, want 1", n)
	}
	if n := len(p.recorded()); n != 10000 {
		t.Errorf("%d records, want 10000", n)
	}
}

// TestHTTPClient has a client and a server of net/http, with bodies of all kinds in both directions.
func TestHTTPClient(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
		w.Write(body)
	}), Limits{})
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 100 {
				body := strings.Repeat("0123456789", worker*i*i)
				var sent io.Reader = strings.NewReader(body)
				if i%2 == 1 {
					sent = io.LimitReader(sent, int64(len(body))) // its length is unknown, so it is sent in chunks
				}
				answer, err := c.Post(p.url()+[]string{"/chunked", "/length"}[i/2%2], "text/plain", sent)
				if err != nil {
					t.Errorf("worker %d, request %d: %v", worker, i, err)
					return
				}
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || string(got) != body {
					t.Errorf("worker %d, request %d: %d bytes, %v; want %d", worker, i, len(got), err, len(body))
				}
			}
		})
	}
	group.Wait()
}

func TestDenyKeepsConnection(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Method: "GET", Path: "/a.*"})
	c := p.dial()
	c.send("GET /b HTTP/1.1\r\nHost: H.example:80\r\n\r\n")
	c.expect(403, "policy")
	if n := p.dials.Load(); n != 0 {
		t.Errorf("the server was dialled for a denied request")
	}
	c.send("POST /a HTTP/1.1\r\nHost: h.example\r\nContent-Length: 5\r\n\r\nGET /GET /a1 HTTP/1.1\r\nHost: h.example\r\n\r\n")
	c.expect(403, "policy")
	c.expect(200, "GET h.example /a1 ")
	want := []Record{
		{Method: "GET", Host: "h.example", Path: "/b", Status: 403, Verdict: Denied, Reason: ReasonNoRule},
		{Method: "POST", Host: "h.example", Path: "/a", Status: 403, Verdict: Denied, Reason: ReasonNoRule},
		{Method: "GET", Host: "h.example", Path: "/a1", Status: 200, Verdict: Forwarded},
	}
	if d := cmp.Diff(want, p.recorded()); d != "" {
		t.Error(d)
	}
}

// closing is a connection whose Close does something first.
type closing struct {
	net.Conn
	first func()
}

func (c *closing) Close() error {
	c.first()
	return c.Conn.Close()
}

// TestStopWhileDialling stops the session while the server is dialled: the connection that comes then is closed, by one
// goroutine alone.
func TestStopWhileDialling(t *testing.T) {
	here, client := net.Pipe()
	there, server := net.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	closed := make(chan struct{})
	s := &Session{Client: &closing{here, sync.OnceFunc(func() { <-closed })}, Decide: func(*Request) Reason { return "" }}
	s.Dial = func(context.Context) (net.Conn, error) {
		stop()
		proxytest.Eventually(t, "the session ends", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ending
		})
		// The sleep is no condition: it gives the race detector a moment in which the stop goes on beside this Close.
		return &closing{there, sync.OnceFunc(func() { close(closed); time.Sleep(10 * time.Millisecond) })}, nil
	}
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	io.WriteString(client, request)
	client.Close()
	<-served
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection to the server: %v", err)
	}
}
