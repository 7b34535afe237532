package httpproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/proxytest"
)

// TestForwardedResponse checks what the client reads, byte by byte. Where the connection goes on, another request
// follows.
func TestForwardedResponse(t *testing.T) {
	for _, tt := range []struct {
		name, method, in, out string
		ends                  bool
	}{
		{"as it is", "GET", "HTTP/1.1 200 OK\r\nX:  y \r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nX:  y \r\nContent-Length: 3\r\n\r\nabc", false},
		{"no phrase", "GET", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false},
		{"unknown status", "GET", "HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n", false},
		{"to HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n", false},
		{"chunked to HEAD", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", false},
		{"304 with length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 300\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 300\r\n\r\n", false},
		{
			"chunks", "GET", "HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n3;ext\r\nabc\r\n0\r\nX: y\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n", false,
		},
		{
			"only between two", "GET", "HTTP/1.1 200 OK\r\nConnection: keep-alive, x\r\nX: y\r\nKeep-Alive: timeout=5\r\nUpgrade: h2,h2c\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false,
		},
		{
			"early hints and continue", "GET", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false,
		},
		{
			"426", "GET", "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false,
		},
		{"length in another form", "GET", "HTTP/1.1 200 OK\r\ncontent-length:003\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false},
		{
			"chunked in another form", "GET", "HTTP/1.1 200 OK\r\nTransfer-encoding: \tChunked\r\n\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false,
		},
		{"close", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", true},
		{"until the end", "GET", "HTTP/1.1 200 OK\r\n\r\nabc" + thenClose, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", true},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newCatcher(t, "\r\n\r\n")
			p := newProxy(t, server.address, Limits{})
			c := p.dial()
			request := tt.method + " / HTTP/1.1\r\nHost: a\r\n\r\n"
			c.send(request)
			<-server.got
			server.answer <- tt.in
			if tt.ends {
				if got, err := c.rest(); got != tt.out || err != nil {
					t.Errorf("the client read\n%q, %v; want\n%q", got, err, tt.out)
				}
				return
			}
			got := make([]byte, len(tt.out))
			if _, err := io.ReadFull(c.r, got); err != nil || string(got) != tt.out {
				t.Fatalf("the client read\n%q, %v; want\n%q", got, err, tt.out)
			}
			c.send(request)
			<-server.got
			server.answer <- okEmpty
			c.expect(200, "")
		})
	}
}

// refusedResponses are heads that two recipients could read differently, or that are none.
var refusedResponses = []struct {
	name, text string
	reason     Reason
}{
	{"length and chunked, RFC 9112 6.1", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonResponse},
	{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", ReasonResponse},
	{"two equal lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", ReasonResponse},
	{"signed length", "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\n", ReasonResponse},
	{"two codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", ReasonResponse},
	{"chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonResponse},
	{"length by another name", "HTTP/1.1 200 OK\r\nContent_Length: 3\r\n\r\n", ReasonResponse},
	{"204 with length, RFC 9110 8.6", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", ReasonResponse},
	{"204 chunked", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ReasonResponse},
	{"100 with length", "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc", ReasonResponse},
	{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", ReasonServerNotHTTP},
	{"bare LF after a header", "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 0\r\n\r\n", ReasonResponse},
	{"bare CR", "HTTP/1.1 200 OK\r\nX: y\rContent-Length: 0\r\n\r\n", ReasonResponse},
	{"NUL", "HTTP/1.1 200 OK\r\nX: y\x00\r\n\r\n", ReasonResponse},
	{"folded", "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", ReasonResponse},
	{"space before the colon, RFC 9112 5.1", "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n", ReasonResponse},
	{"two digits", "HTTP/1.1 20 OK\r\n\r\n", ReasonServerNotHTTP},
	{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", ReasonServerNotHTTP},
	{"status 099", "HTTP/1.1 099 OK\r\n\r\n", ReasonServerNotHTTP},
	{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", ReasonServerNotHTTP},
	{"HTTP/2", "HTTP/2 200 OK\r\n\r\n", ReasonServerNotHTTP},
	{"greeting of another protocol", "220 mail.example ESMTP\r\n", ReasonServerNotHTTP},
	{"TLS alert", "\x15\x03\x01\x00\x02\x02\x0a", ReasonServerNotHTTP},
	{"protocol that was not asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", ReasonUpgrade},
	{"too many 1xx", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 40), ReasonTooManyInterims},
	{"head without end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 70), ReasonResponse},
	{"too many headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", ReasonResponse},
	{"head of a server that dies", "HTTP/1.1 200 OK\r\nX:" + thenClose, ReasonResponse},
	{"no answer", thenClose, ReasonServerClosed},
}

func TestRefusedResponses(t *testing.T) {
	for _, tt := range refusedResponses {
		t.Run(tt.name, func(t *testing.T) {
			server := newCatcher(t, "\r\n\r\n")
			p := newProxy(t, server.address, Limits{})
			c := p.dial()
			c.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
			<-server.got
			server.answer <- tt.text
			var answer *http.Response
			for {
				if answer, _ = c.response("GET"); answer.StatusCode >= 200 {
					break
				}
			}
			if answer.StatusCode != 502 || !answer.Close {
				t.Errorf("got %d, close %v", answer.StatusCode, answer.Close)
			}
			c.expectEnd()
			if got := p.recorded(); len(got) != 1 || got[0].Verdict != Failed || got[0].Reason != tt.reason || got[0].Status != 502 {
				t.Errorf("recorded: %v", got)
			}
			c.Close()
			if errs := p.ended(1); errs[0] == nil {
				t.Error("Serve returned no error")
			}
		})
	}
}

// TestTruncatedResponse: the client's connection is reset, so that it cannot take what it has for the whole.
func TestTruncatedResponse(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"},
		{"between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"in trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"},
		{"invalid chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newCatcher(t, "\r\n\r\n")
			p := newProxy(t, server.address, Limits{})
			c := p.dial()
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			<-server.got
			server.answer <- tt.text + thenClose
			if got, err := c.rest(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client read %q, %v; want a reset", got, err)
			}
		})
	}
}

// TestUnsolicitedResponseToNext: a second response that comes with the first one ends the session before another
// request can begin.
func TestUnsolicitedResponseToNext(t *testing.T) {
	client, toClient := net.Pipe()
	server, fromServer := net.Pipe()
	s := &Session{Limits: DefaultLimits()}
	s.changed.L = &s.mu
	s.client, s.server = bufconn.New(toClient, &s.progress, bufconn.Unlimited{}), bufconn.New(fromServer, &s.progress, bufconn.Unlimited{})
	s.exchange = exchange{method: "GET", active: true, requestDone: true}
	go io.WriteString(server, okEmpty+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(client)
		read <- string(b)
	}()
	if s.serveResponse() {
		t.Error("another response may follow")
	}
	if _, ok := s.begin(&Request{Method: "GET"}); ok || !errors.Is(s.err, errUnsolicited) {
		t.Errorf("another request may begin; error %v", s.err)
	}
	s.abort(nil)
	if got := <-read; got != okEmpty {
		t.Errorf("the client read %q", got)
	}
}

// TestUnsolicitedResponse: bytes of a server between requests are no response to the next one.
func TestUnsolicitedResponse(t *testing.T) {
	for name, later := range map[string]bool{"with the response": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			answered := make(chan bool)
			p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					t.Error(err)
				}
				if later {
					io.WriteString(c, okEmpty)
					<-answered
					io.WriteString(c, okEmpty)
				} else {
					io.WriteString(c, okEmpty+okEmpty)
				}
				r.ReadByte()
			}), Limits{})
			c := p.dial()
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			c.expect(200, "")
			close(answered)
			if errs := p.ended(1); !errors.Is(errs[0], errUnsolicited) {
				t.Errorf("Serve returned %v", errs[0])
			}
			if got, err := c.rest(); got != "" {
				t.Errorf("the client read %q, %v", got, err)
			}
		})
	}
}

// TestDialledServerSpeaksOrCloses has a server, dialled for a request, that says something before it can have read
// that, or closes. The client gets 502.
func TestDialledServerSpeaksOrCloses(t *testing.T) {
	for _, said := range []string{"SSH-2.0-OpenSSH_9.2\r\n", ""} {
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
