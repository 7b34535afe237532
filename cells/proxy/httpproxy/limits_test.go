package httpproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/proxy/proxytest"
)

// pipes is a session between two pipes, in the time of a synctest bubble.
type pipes struct {
	client, server net.Conn
	dials          int
	records        []Record
	done           chan error
}

func newPipes(t *testing.T) *pipes {
	p := &pipes{done: make(chan error, 1)}
	var client, server net.Conn
	p.client, client = net.Pipe()
	p.server, server = net.Pipe()
	rules, err := Compile(anything)
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{
		Client: client, Dial: func(context.Context) (net.Conn, error) { p.dials++; return server, nil },
		Decide: rules.Decide, Record: func(r Record) { p.records = append(p.records, r) },
	}
	go func() { p.done <- s.Serve(t.Context()) }()
	t.Cleanup(func() { p.client.Close(); p.server.Close() })
	return p
}

// write fails the test if the other end does not read.
func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, until string) string {
	t.Helper()
	var b strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(b.String(), until); {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		b.Write(one)
	}
	return b.String()
}

// TestTimeLimits: no peer holds a connection for longer than the default limits.
func TestTimeLimits(t *testing.T) {
	d := DefaultLimits()
	for _, tt := range []struct {
		name        string
		run         func(t *testing.T, p *pipes)
		least, most time.Duration
		want        []Record
		answer      string
	}{
		{
			name:  "client that sends nothing",
			run:   func(*testing.T, *pipes) {},
			least: d.FirstByte, most: d.FirstByte, answer: "HTTP/1.1 408 ",
			want: []Record{{Status: 408, Verdict: Refused, Reason: ReasonSilent}},
		},
		{
			name: "head byte by byte",
			run: func(t *testing.T, p *pipes) {
				for range 9 {
					write(t, p.client, "G")
					time.Sleep(time.Second)
				}
			},
			least: d.Head, most: d.Head, answer: "HTTP/1.1 408 ",
			want: []Record{{Status: 408, Verdict: Refused, Reason: ReasonHeadTimeout}},
		},
		{
			name: "idle after a request",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, request)
				read(t, p.server, "\r\n\r\n")
				write(t, p.server, okEmpty)
				read(t, p.client, "\r\n\r\n")
			},
			least: d.Idle, most: d.Idle * 5 / 4,
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 200, Verdict: Forwarded}},
		},
		{
			name: "server that does not answer",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, request)
				read(t, p.server, "\r\n\r\n")
			},
			least: d.Stall, most: d.Stall * 5 / 4, answer: "HTTP/1.1 504 ",
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 504, Verdict: Failed, Reason: ReasonStalled}},
		},
		{
			name: "server whose head comes byte by byte",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, request)
				read(t, p.server, "\r\n\r\n")
				for _, c := range "HTTP/1.1 " {
					write(t, p.server, string(c))
					time.Sleep(time.Second)
				}
			},
			least: d.Head, most: d.Head, answer: "HTTP/1.1 502 ",
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 502, Verdict: Failed, Reason: ReasonResponse}},
		},
		{
			name: "client that does not send its body",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
				read(t, p.server, "\r\n\r\n")
			},
			least: d.Stall, most: d.Stall * 5 / 4, answer: "HTTP/1.1 504 ",
			want: []Record{{Method: "POST", Host: "h", Path: "/", Status: 504, Verdict: Failed, Reason: ReasonStalled}},
		},
		{
			name: "client that does not read",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, request)
				read(t, p.server, "\r\n\r\n")
				write(t, p.server, okEmpty)
			},
			least: d.Stall, most: d.Stall * 5 / 4,
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 200, Verdict: Forwarded}},
		},
		{
			name: "server that does not read",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, request)
			},
			least: d.Stall, most: d.Stall * 5 / 4, answer: "HTTP/1.1 504 ",
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 504, Verdict: Failed, Reason: ReasonStalled}},
		},
		{
			name: "idle after an upgrade",
			run: func(t *testing.T, p *pipes) {
				write(t, p.client, "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
				read(t, p.server, "\r\n\r\n")
				write(t, p.server, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
				read(t, p.client, "\r\n\r\n")
			},
			least: d.Tunnel, most: d.Tunnel * 5 / 4,
			want: []Record{{Method: "GET", Host: "h", Path: "/", Status: 101, Verdict: Forwarded}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes(t)
				began := time.Now()
				tt.run(t, p)
				answer := make(chan string, 1)
				if tt.name != "client that does not read" {
					go func() {
						b, _ := io.ReadAll(p.client)
						answer <- string(b)
					}()
				}
				<-p.done
				if lasted := time.Since(began); lasted < tt.least || lasted > tt.most+2*d.Linger {
					t.Errorf("the session lasted %v, want %v to %v", lasted, tt.least, tt.most)
				}
				if diff := cmp.Diff(tt.want, p.records); diff != "" {
					t.Error(diff)
				}
				if tt.name == "client that sends nothing" && p.dials > 0 {
					t.Error("the server was dialled without a request")
				}
				if tt.name != "client that does not read" {
					if got := <-answer; !strings.HasPrefix(got, tt.answer) || tt.answer == "" && got != "" {
						t.Errorf("the client read %q, want %q", got, tt.answer)
					}
				}
			})
		})
	}
}

// TestSlowBody: as long as bytes move, a message may take any time.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		write(t, p.client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n")
		read(t, p.server, "\r\n\r\n")
		for range 100 {
			time.Sleep(time.Minute)
			write(t, p.client, "x")
			read(t, p.server, "x")
		}
		write(t, p.server, okEmpty)
		read(t, p.client, "\r\n\r\n")
		synctest.Wait() // a pipe whose other end is closed refuses deadlines, which a socket does not
		p.client.Close()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
}

// TestHeadLimit: a head may be as long as the limit, and no longer.
func TestHeadLimit(t *testing.T) {
	const limit = 20000
	p := newProxy(t, httpServer(t, echo), Limits{HeadBytes: limit})
	head := func(n int) string {
		const start, end = "GET / HTTP/1.1\r\nHost: h\r\nX: ", "\r\n\r\n"
		return start + strings.Repeat("x", n-len(start)-len(end)) + end
	}
	c := p.dial()
	c.send(head(limit) + head(limit-1))
	c.expect(200, "")
	c.expect(200, "")
	c.send(head(limit+1) + head(limit))
	if answer := c.expect(431, ""); !answer.Close {
		t.Error("the client is not told of the end")
	}
	c.expectEnd()
}

// TestNoMemoryForRequest has memory for the client's connection alone: the request is told so at once.
func TestNoMemoryForRequest(t *testing.T) {
	p := startProxy(t, &proxy{memory: proxytest.NewMemory(20 << 10), server: rawServer(t, func(c *net.TCPConn, r *bufio.Reader) { io.Copy(io.Discard, r) })})
	c := p.dial()
	c.send(request)
	text, err := c.rest()
	if err != nil || !strings.HasPrefix(text, "HTTP/1.1 503 ") {
		t.Errorf("the client got %q, %v", text, err)
	}
	p.ended(1)
	p.expectRecords(Record{Method: "GET", Host: "h", Path: "/", Status: 503, Verdict: Failed, Reason: ReasonMemory})
}
