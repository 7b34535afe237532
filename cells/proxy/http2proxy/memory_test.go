package http2proxy

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/proxy/proxytest"
)

// maxIdlePair is what an idle pair of connections may cost in this process, with the stacks of its goroutines.
const maxIdlePair = 32 << 10

// TestIdleMemory: a connection that has served requests costs little while it waits for the next one.
func TestIdleMemory(t *testing.T) {
	const pairs = 500
	// The peers of the sessions are in this process too, so they have neither goroutines nor buffers when it is measured.
	l := proxytest.Listen(t)
	var mu sync.Mutex
	var servers []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			servers = append(servers, c)
			mu.Unlock()
		}
	}()
	p := startProxy(t, &proxy{server: l.Addr().String(), quiet: true})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range servers {
			c.Close()
		}
	})
	before, goroutines := proxytest.MemoryInUse(), runtime.NumGoroutine()
	var clients []net.Conn
	for i := range pairs {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
		exchange(t, c, func() net.Conn {
			var server net.Conn
			proxytest.Eventually(t, "the session has dialled", func() bool {
				mu.Lock()
				defer mu.Unlock()
				if len(servers) > i {
					server = servers[i]
				}
				return server != nil
			})
			return server
		})
	}
	p.noStreams()
	if n := runtime.NumGoroutine() - goroutines; n > 2*pairs {
		t.Errorf("%d goroutines for %d pairs", n, pairs)
	}
	each := (proxytest.MemoryInUse() - before) / pairs
	t.Logf("%d bytes for an idle pair, with its two peers", each)
	if each > maxIdlePair && !raceDetector { // which needs more
		t.Errorf("%d bytes for an idle pair, want at most %d", each, maxIdlePair)
	}
	runtime.KeepAlive(clients)
}

// exchange has three requests, with headers that fill tables, and answers; its memory is released after that.
func exchange(t *testing.T, client net.Conn, server func() net.Conn) {
	t.Helper()
	if _, err := client.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c := &framer{Framer: http2.NewFramer(client, client), Conn: client, t: t}
	c.encoder = hpack.NewEncoder(&c.block)
	c.must(c.WriteSettings())
	var s *framer
	for i := range uint32(3) {
		c.get(2*i+1, fmt.Sprintf("/api/v1/things/%d", i), "user-agent", "bench/1.0", "accept", "*/*", "accept-encoding", "gzip, deflate",
			"authorization", "Bearer 0123456789abcdef0123456789abcdef", "x-request-id", fmt.Sprintf("7d1f9c1e-6f5b-4b0c-9f5e-1a2b3c4d5e6%d", i))
		if s == nil {
			conn := server()
			if _, err := conn.Read(make([]byte, len(http2.ClientPreface))); err != nil {
				t.Fatal(err)
			}
			s = &framer{Framer: http2.NewFramer(conn, conn), Conn: conn, t: t}
			s.encoder = hpack.NewEncoder(&s.block)
			s.must(s.WriteSettings())
		}
		s.next(http2.FrameHeaders)
		s.head(2*i+1, true, ":status", "200", "server", "canned", "content-type", "text/plain", "x-request-id", fmt.Sprint(i))
		c.next(http2.FrameHeaders)
	}
}
