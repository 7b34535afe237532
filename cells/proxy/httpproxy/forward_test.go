package httpproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// catcher is a server that hands out what it read, and answers as it is told.
type catcher struct {
	address string
	got     chan string
	answer  chan string
}

// thenClose at the end of an answer closes the connection behind it.
const thenClose = "\x00close"

// newCatcher starts a server that waits until what it read ends in until.
func newCatcher(t testing.TB, until string) *catcher {
	c := &catcher{got: make(chan string, 2), answer: make(chan string, 1)}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	c.address = rawServer(t, func(conn *net.TCPConn, r *bufio.Reader) {
		for {
			var b strings.Builder
			for !strings.HasSuffix(b.String(), until) {
				one, err := r.ReadByte()
				if err != nil {
					c.got <- b.String() + "<" + err.Error() + ">"
					return
				}
				b.WriteByte(one)
			}
			c.got <- b.String()
			var answer string
			select {
			case answer = <-c.answer:
			case <-over:
				return
			}
			answer, last := strings.CutSuffix(answer, thenClose)
			if _, err := io.WriteString(conn, answer); err != nil || last {
				return
			}
		}
	})
	return c
}

const okEmpty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// TestForwardedRequest checks what the server reads, byte by byte.
func TestForwardedRequest(t *testing.T) {
	for _, tt := range []struct{ name, in, out string }{
		{"as it is", "GET /a/%2F?b HTTP/1.1\r\nhOsT:  A.b:80 \r\nX: \t y\t\r\n\r\n", "GET /a/%2F?b HTTP/1.1\r\nhOsT:  A.b:80 \r\nX: \t y\t\r\n\r\n"},
		{"absolute form", "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n"},
		{
			"listed in Connection, RFC 9110 7.6.1",
			"GET / HTTP/1.1\r\nA: 1\r\nConnection: x-b, keep-alive\r\nX-B: 2\r\nHost: a\r\nconnection: X-C,,\r\nX-C: 3\r\nx-b: 4\r\nD: 5\r\n\r\n",
			"GET / HTTP/1.1\r\nA: 1\r\nHost: a\r\nD: 5\r\n\r\n",
		},
		{
			"never removed",
			"POST / HTTP/1.1\r\nHost: a\r\nConnection: host, content-length, transfer-encoding, expect, trailer\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"only between two",
			"GET / HTTP/1.1\r\nKeep-Alive: timeout=5\r\nHost: a\r\nProxy-Connection: close\r\nTE: gzip\r\nUpgrade: x\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		},
		{"TE: trailers", "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers, gzip\r\nConnection: TE\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers\r\n\r\n"},
		{"close", "GET / HTTP/1.1\r\nConnection: Close\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"},
		{
			"upgrade",
			"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		},
		{
			"upgrade to h2c",
			"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		},
		{"upgrade to h2c among others", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket, H2C\r\nConnection: Upgrade\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"upgrade in two lines", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n"},
		{
			"length in another form", "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\ncontent-LENGTH:\t 000 \r\nZ: 1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: 0\r\nZ: 1\r\n\r\n",
		},
		{
			"chunked in another form", "POST / HTTP/1.1\r\ntransfer-encoding:\tCHUNKED\t\r\nHost: a\r\n\r\n0\r\n\r\n",
			"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newCatcher(t, "\r\n\r\n")
			if tt.name == "length" {
				server = newCatcher(t, "\r\n\r\n\r\n\r\n")
			}
			p := newProxy(t, server.address, Limits{})
			c := p.dial()
			c.send(tt.in)
			if got := <-server.got; got != tt.out {
				t.Errorf("the server read\n%q, want\n%q", got, tt.out)
			}
			server.answer <- okEmpty
			c.expect(200, "")
		})
	}
}

// TestForwardedChunks checks what becomes of a chunked body.
func TestForwardedChunks(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	long := strings.Repeat("0123456789abcdef", 4096)
	for _, tt := range []struct{ name, in, out string }{
		{"plain", "3\r\nabc\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		{"extensions", "003;a=\"b;c\"\r\nabc\r\nA;x\r\n0123456789\r\n0;y=z\r\n\r\n", "003\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"},
		{"trailers", "0\r\nX: y\r\nz:  \r\n\r\n", "0\r\nX: y\r\nz:  \r\n\r\n"},
		{"like chunks inside", "7\r\n0\r\n\r\n..\r\n00\r\n\r\n", "7\r\n0\r\n\r\n..\r\n00\r\n\r\n"},
		{"long", "10000\r\n" + long + "\r\n0\r\n\r\n", "10000\r\n" + long + "\r\n0\r\n\r\n"},
	} {
		for _, pieces := range []int{1, 7, 1 << 20} {
			if tt.name == "long" && pieces < 1<<20 {
				pieces *= 1000
			}
			server := newCatcher(t, "0\r\n\r\n")
			if tt.name == "trailers" {
				server = newCatcher(t, "z:  \r\n\r\n")
			}
			if tt.name == "like chunks inside" {
				server = newCatcher(t, "00\r\n\r\n")
			}
			p := newProxy(t, server.address, Limits{})
			c := p.dial()
			for text := head + tt.in; text != ""; {
				n := min(pieces, len(text))
				c.send(text[:n])
				text = text[n:]
			}
			if got := <-server.got; got != head+tt.out {
				t.Errorf("%s in pieces of %d: the server read %d bytes\n%.300q, want %d\n%.300q", tt.name, pieces, len(got), got, len(head+tt.out), head+tt.out)
			}
			server.answer <- okEmpty
			c.expect(200, "")
			if tt.name == "plain" {
				c.send("GET / HTTP/1.1\r\nHost: a\r\nX: 0\r\n\r\n")
				if got := <-server.got; !strings.HasPrefix(got, "GET ") {
					t.Errorf("the next request: %q", got)
				}
				server.answer <- okEmpty
				c.expect(200, "")
			}
		}
	}
}

// TestRefusedChunks: the client gets 400, and the server never a whole request.
func TestRefusedChunks(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		reason     Reason
	}{
		{"no digits, RFC 9112 7.1", "\r\n\r\n", ReasonChunk},
		{"no number", "x\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"minus", "-3\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"plus", "+3\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"0x", "0x3\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"blank before", " 3\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"blank behind", "3 \r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"tab behind", "3\t;a\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"underscore", "1_0\r\n", ReasonChunk},
		{"beyond 63 bits", "10000000000000003\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"many zeros", "00000000000000003\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"long extension", "3;" + strings.Repeat("a", 300) + "\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"endless extension", "3;" + strings.Repeat("a", 300), ReasonChunk},
		{"bare LF after the size", "3\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"bare LF in an extension", "3;a\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"bare CR in an extension", "3;a\rb\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"NUL in an extension", "3;a\x00\r\nabc\r\n0\r\n\r\n", ReasonChunk},
		{"bare LF after the data", "3\r\nabc\n0\r\n\r\n", ReasonChunk},
		{"two bytes after the data", "3\r\nabcxx0\r\n\r\n", ReasonChunk},
		{"longer than its size", "3\r\nabcd\r\n0\r\n\r\n", ReasonChunk},
		{"bare LF at the end", "0\r\n\n", ReasonTrailer},
		{"bare LF in a trailer", "0\r\nX: y\n\r\n", ReasonTrailer},
		{"folded trailer", "0\r\nX: y\r\n z\r\n\r\n", ReasonTrailer},
		{"trailer without colon", "0\r\nX\r\n\r\n", ReasonTrailer},
		{"length as trailer, RFC 9110 6.5.1", "0\r\nContent-Length: 3\r\n\r\n", ReasonTrailer},
		{"coding as trailer", "0\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonTrailer},
		{"host as trailer", "0\r\nHost: b\r\n\r\n", ReasonTrailer},
		{"request for trailer", "0\r\nGET / HTTP/1.1\r\n\r\n", ReasonTrailer},
		{"too many trailers", "0\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", ReasonTrailer},
		{"too long trailers", "0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 4) + "\r\n", ReasonTrailer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			done := make(chan error, 1)
			server := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				done <- err
			})
			p := newProxy(t, server, Limits{HeadBytes: 3000}) // less than net/http has for trailers
			c := p.dial()
			c.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + tt.body)
			if answer, _ := c.response("POST"); answer.StatusCode != 400 || !answer.Close {
				t.Errorf("got %d, close %v", answer.StatusCode, answer.Close)
			}
			c.expectEnd()
			if err := <-done; err == nil {
				t.Error("the server read a whole body")
			}
			if got := p.recorded(); len(got) != 1 || got[0].Verdict != Failed || got[0].Reason != tt.reason || got[0].Status != 400 {
				t.Errorf("recorded: %v", got)
			}
		})
	}
}
