package httpproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/proxy/proxytest"
)

// maxIdlePair is what an idle pair of connections may cost in this process, with the stacks of its goroutines.
const maxIdlePair = 32 << 10

// TestIdleMemory: a connection that has served a request costs little while it waits for the next one.
func TestIdleMemory(t *testing.T) {
	const pairs = 1000
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
	for range pairs {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
		if _, err := io.WriteString(c, benchRequest); err != nil {
			t.Fatal(err)
		}
	}
	proxytest.Eventually(t, "every session has dialled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(servers) == pairs
	})
	for _, c := range servers {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	proxytest.Eventually(t, "all sessions wait", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.sessions {
			s.mu.Lock()
			idle := s.waiting && !s.exchange.active
			s.mu.Unlock()
			if !idle {
				return false
			}
		}
		return len(p.sessions) == pairs
	})
	if n := runtime.NumGoroutine() - goroutines; n > 2*pairs {
		t.Errorf("%d goroutines for %d pairs", n, pairs)
	}
	each := (proxytest.MemoryInUse() - before) / pairs
	t.Logf("%d bytes for an idle pair, with its two peers", each)
	if each > maxIdlePair {
		t.Errorf("%d bytes for an idle pair, want at most %d", each, maxIdlePair)
	}
}
