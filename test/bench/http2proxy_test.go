package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/internal/testutil"
)

const (
	http2Rounds   = 8
	http2Requests = 1500 // of a round, on one connection
	http2Clients  = 16   // connections, with one stream at a time each
	http2Burst    = 400  // of each client and round
)

// http2Proxies measures requests of HTTP/2 with prior knowledge through the proxy, against no proxy, a bare relay and
// nginx, which speaks HTTP/2 to servers as a proxy for gRPC.
func http2Proxies(t *testing.T, r *report) {
	serve := serveHTTP2
	paths := []httpPath{directHTTP(t, serve), relayHTTP(t, serve), nginxHTTP(t, nginxHTTP2, serve), porinHTTP(t, serve)}
	p50, cost, rates := newRounds("request p50", "us"), newRounds("processor of the proxy, a request", "us"), newRounds("requests, 16 connections", "1/s")
	for range http2Rounds {
		for _, p := range paths {
			trips := p.requestsHTTP2(t, http2Requests)
			p50.add(p.name, 1e3*percentile(trips, 0.5))
			before, began := processorTime(t, p.pids), time.Now()
			var clients sync.WaitGroup
			for range http2Clients {
				clients.Go(func() { p.requestsHTTP2(t, http2Burst) })
			}
			clients.Wait()
			rates.add(p.name, http2Clients*http2Burst/time.Since(began).Seconds())
			if len(p.pids) > 0 {
				cost.add(p.name, float64((processorTime(t, p.pids)-before).Microseconds())/(http2Clients*http2Burst))
			}
		}
	}
	for _, measured := range []*rounds{p50, rates} {
		measured.report(r, "HTTP/2", "direct")
	}
	cost.report(r, "HTTP/2", "nginx")
	of := func(measure string) float64 { return r.value(measure, "porin") / r.value(measure, "nginx") }
	r.atLeast("HTTP/2 requests for each processor, of nginx'", 1/of("processor of the proxy, a request, HTTP/2"), 0.35, "")
	r.atMost("HTTP/2 request p50, added to direct", r.value("request p50, HTTP/2", "porin")-r.value("request p50, HTTP/2", "direct"), 60, "us")
}

// requestsHTTP2 sends requests one after the other on a connection, as a client of gRPC does, and returns how long each
// took.
func (p httpPath) requestsHTTP2(t *testing.T, n int) []time.Duration {
	transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(context.Context, string, string, *tls.Config) (net.Conn, error) {
		return p.from.Dial(p.to, 5*time.Second)
	}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 10 * time.Second}
	trips := make([]time.Duration, 0, n)
	for range n {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.to.String()+"/shop.Items/Get", nil)
		if err != nil {
			t.Error(err)
			break
		}
		request.Header.Set("Te", "trailers")
		began := time.Now()
		response, err := client.Do(request)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			break
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", p.name, response.Status, err)
			break
		}
		trips = append(trips, time.Since(began))
	}
	return trips
}

// serveHTTP2 answers each request with the same bytes.
func serveHTTP2(t *testing.T, ns *testutil.Namespace, addr netip.AddrPort) {
	t.Helper()
	listener := ns.Listen(t, addr)
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	t.Cleanup(func() { listener.Close() })
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello, world") })
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			served.Go(func() { (&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: handler}) })
		}
	})
}

// nginxHTTP2 is the part of nginx' configuration that forwards to a server.
func nginxHTTP2(listen, server string) string {
	return fmt.Sprintf(`upstream pod { server %s; keepalive 64; keepalive_requests 1000000000; }
	server { listen %s http2; location / { grpc_pass grpc://pod; } }`, server, listen)
}
