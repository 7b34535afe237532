package httpproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// TestRandomPeers: clients and servers that misbehave at random. Whatever a client reads from a server is the whole
// answer to its own request, no server reads a request that is not allowed, and every session ends.
func TestRandomPeers(t *testing.T) {
	const conns, requests = 200, 20
	p := newProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) { randomServer(t, c, r) }), Limits{})
	p.allow(model.HTTPRule{Path: "/ok/.*"})
	var answered atomic.Int32
	var group sync.WaitGroup
	for i := range conns {
		group.Go(func() {
			c, err := net.Dial("tcp", p.listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			answered.Add(int32(randomClient(t, c.(*net.TCPConn), fmt.Sprintf("%d", i), requests)))
		})
	}
	group.Wait()
	p.ended(conns)
	if n := answered.Load(); n < conns {
		t.Errorf("only %d requests of %d were answered", n, conns*requests)
	}
}

func randomServer(t *testing.T, c *net.TCPConn, r *bufio.Reader) {
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if !strings.HasPrefix(q.RequestURI, "/ok/") {
			t.Errorf("the server read a request for %s", q.RequestURI)
		}
		if rand.IntN(10) == 0 {
			fmt.Fprintf(c, "HTTP/1.1 413 Too Large\r\nX-Id: %s\r\nContent-Length: 0\r\n\r\n", q.RequestURI) // before the body
			if rand.IntN(2) == 0 {
				return
			}
			io.Copy(io.Discard, q.Body)
			continue
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		body = append([]byte(q.RequestURI+" "), body...)
		var b bytes.Buffer
		fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nX-Id: %s\r\n", q.RequestURI)
		last := rand.IntN(20) == 0
		switch {
		case last && rand.IntN(2) == 0:
			b.WriteString("\r\n")
			b.Write(body)
		case rand.IntN(2) == 0:
			b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
			for rest := body; len(rest) > 0; {
				n := 1 + rand.IntN(len(rest))
				fmt.Fprintf(&b, "%x;x=y\r\n%s\r\n", n, rest[:n])
				rest = rest[n:]
			}
			b.WriteString("0\r\nX-Trailer: z\r\n\r\n")
		default:
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		}
		out := b.Bytes()
		switch rand.IntN(30) {
		case 0:
			c.SetLinger(0)
			c.Write(out[:rand.IntN(len(out))])
			return
		case 1:
			if !last { // else it may be a part of the body
				out = append(out, "HTTP/1.1 200 OK\r\nX-Id: poison\r\nContent-Length: 0\r\n\r\n"...)
			}
		case 2:
			out = bytes.Replace(out, []byte("\r\n"), []byte("\n"), 1)
		}
		if _, err := c.Write(out); err != nil || last {
			return
		}
	}
}

// randomClient returns how many of its requests were answered as they must be.
func randomClient(t *testing.T, c *net.TCPConn, name string, requests int) int {
	type sent struct{ id, body string }
	var out bytes.Buffer
	var all []sent
	for i := range requests {
		s := sent{fmt.Sprintf("/ok/%s/%d", name, i), strings.Repeat("x", rand.IntN(3)*rand.IntN(20_000))}
		if rand.IntN(10) == 0 {
			s.id = "/denied" + s.id
		}
		fmt.Fprintf(&out, "POST %s HTTP/1.1\r\nHost: h\r\n", s.id)
		if rand.IntN(2) == 0 {
			fmt.Fprintf(&out, "Content-Length: %d\r\n\r\n%s", len(s.body), s.body)
		} else {
			out.WriteString("Transfer-Encoding: chunked\r\n\r\n")
			if len(s.body) > 0 {
				fmt.Fprintf(&out, "%x\r\n%s\r\n", len(s.body), s.body)
			}
			out.WriteString("0\r\n\r\n")
		}
		all = append(all, s)
	}
	text := out.Bytes()
	if rand.IntN(5) == 0 {
		text[rand.IntN(len(text))] = "\x00\r\n "[rand.IntN(4)] // nowhere in a head or a chunk's size is it valid
	}
	if rand.IntN(5) == 0 {
		text = text[:rand.IntN(len(text))]
	}
	written := make(chan bool)
	go func() {
		defer close(written)
		for len(text) > 0 {
			n := 1 + rand.IntN(len(text))
			if _, err := c.Write(text[:n]); err != nil {
				return
			}
			text = text[n:]
		}
		c.CloseWrite()
	}()
	defer func() { c.Close(); <-written }()
	r := bufio.NewReader(c)
	for i, s := range all {
		if rand.IntN(100) == 0 {
			c.SetLinger(0)
			return i
		}
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return i
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return i
		}
		switch id := answer.Header.Get("X-Id"); {
		case id == "" && answer.StatusCode != http.StatusOK: // the proxy's
		case id != s.id:
			t.Errorf("the answer to %s is one to %s", s.id, id)
		case answer.StatusCode == http.StatusOK && !bytes.HasPrefix(body, []byte(id+" ")):
			t.Errorf("the answer to %s has the body %.50q", s.id, body)
		case answer.StatusCode == http.StatusOK && len(body) != len(id)+1+len(s.body) && id == s.id:
			t.Errorf("the answer to %s has a body of %d bytes, want %d", s.id, len(body), len(id)+1+len(s.body))
		}
	}
	return len(all)
}
