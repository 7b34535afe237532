package httpproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/model"
)

// cannedServer answers each head that it reads with the same response, at next to no cost.
func cannedServer(t testing.TB, body int) string {
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: canned\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", body, strings.Repeat("x", body))
	return rawServer(t, func(c *net.TCPConn, _ *bufio.Reader) {
		b, n := make([]byte, 4096), 0
		for {
			k, err := c.Read(b[n:])
			if err != nil {
				return
			}
			if n += k; headEnd(b[:n], 0) == n {
				n = 0
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}
	})
}

const benchRequest = "GET /api/v1/things/42?full=true HTTP/1.1\r\nHost: things.example.svc.cluster.local\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
	"Accept-Encoding: gzip, deflate\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\nX-Request-Id: 7d1f9c1e-6f5b-4b0c-9f5e-1a2b3c4d5e6f\r\n\r\n"

// load sends b.N requests over conns connections to address, and reports requests per second and per second of this
// process's CPU time, which the client and the server share.
func load(b *testing.B, address string, conns, body int) {
	b.Helper()
	clients := make([]net.Conn, conns)
	for i := range clients {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
	}
	request := []byte(benchRequest)
	var left atomic.Int64
	run := func(n int64) {
		left.Store(n)
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				buf := make([]byte, 64<<10)
				for left.Add(-1) >= 0 {
					if _, err := c.Write(request); err != nil {
						b.Error(err)
						return
					}
					for n, want := 0, -1; n != want; {
						k, err := c.Read(buf[min(n, 4096):])
						if err != nil {
							b.Error(err)
							return
						}
						if n += k; want < 0 {
							if end := headEnd(buf[:n], 0); end > 0 {
								want = end + body
							}
						}
					}
				}
			})
		}
		wg.Wait()
	}
	run(int64(conns))
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	run(int64(b.N))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/request")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProxy compares requests through the proxy with those through httputil.ReverseProxy, and with none between.
func BenchmarkProxy(b *testing.B) {
	for _, body := range []int{100, 100 << 10} {
		for _, conns := range []int{1, 64} {
			name := func(of string) string { return fmt.Sprintf("%s/body=%d/conns=%d", of, body, conns) }
			b.Run(name("porin"), func(b *testing.B) {
				p := newQuietProxy(b, cannedServer(b, body))
				p.allow(model.HTTPRule{Method: "GET", Path: "/api/v[0-9]+/.*", Host: `things\.example\..*`})
				load(b, p.listener.Addr().String(), conns, body)
			})
			b.Run(name("reverseproxy"), func(b *testing.B) {
				target, err := url.Parse("http://" + cannedServer(b, body))
				if err != nil {
					b.Fatal(err)
				}
				transport := &http.Transport{MaxIdleConnsPerHost: conns}
				defer transport.CloseIdleConnections()
				reverse := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
				load(b, httpServer(b, reverse.ServeHTTP), conns, body)
			})
			b.Run(name("direct"), func(b *testing.B) { load(b, cannedServer(b, body), conns, body) })
		}
	}
}

// BenchmarkUpload and its splice: one long request body.
func BenchmarkUpload(b *testing.B) {
	const size = 64 << 20
	server := httpServer(b, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	p := newQuietProxy(b, server)
	for name, base := range map[string]string{"porin": p.url(), "direct": "http://" + server} {
		b.Run(name, func(b *testing.B) {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			b.SetBytes(size)
			for b.Loop() {
				answer, err := c.Post(base, "application/octet-stream", io.LimitReader(zeros{}, size))
				if err != nil {
					b.Fatal(err)
				}
				answer.Body.Close()
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// BenchmarkParse reads a head, without any connection.
func BenchmarkParse(b *testing.B) {
	head := []byte(benchRequest)
	var host knownHost
	b.ReportAllocs()
	b.SetBytes(int64(len(head)))
	for b.Loop() {
		r := requests.Get().(*Request)
		if reason := r.parse(head, 128, &host); reason != "" {
			b.Fatal(reason)
		}
		r.release()
	}
}
