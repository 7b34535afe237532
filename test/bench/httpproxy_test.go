package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	httpRounds   = 10
	httpRequests = 2000 // of a round, on one connection
	httpClients  = 32
	httpBurst    = 500 // of each client and round
	httpPort     = 8080
)

// httpRule lets pods be asked by GET.
var httpRule = map[string]any{
	"apiVersion": "cilium.io/v2", "kind": "CiliumClusterwideNetworkPolicy", "metadata": map[string]any{"name": "get"},
	"spec": map[string]any{
		"endpointSelector": map[string]any{},
		"ingress": []any{map[string]any{"toPorts": []any{map[string]any{
			"ports": []any{map[string]any{"port": strconv.Itoa(httpPort), "protocol": "TCP"}},
			"rules": map[string]any{"http": []any{map[string]any{"method": "GET", "path": "/.*"}}},
		}}}},
	},
}

// httpPath is a way from a client to a server, and the processes of what is in between.
type httpPath struct {
	name string
	from *testutil.Namespace
	to   netip.AddrPort
	pids []int
}

// httpProxies measures a request and its answer through the proxy, against no proxy, a bare relay and nginx on the same
// machine: the latency that a proxy adds with one connection, and the processor time that its processes take for a
// request with many.
func httpProxies(t *testing.T, r *report) {
	paths := []httpPath{directHTTP(t, serveHTTP), relayHTTP(t, serveHTTP), nginxHTTP(t, nginxHTTP1, serveHTTP), porinHTTP(t, serveHTTP)}
	p50, p99, cost, rates := newRounds("request p50", "us"), newRounds("request p99", "us"), newRounds("processor of the proxy, a request", "us"), newRounds("requests, 32 connections", "1/s")
	for range httpRounds {
		for _, p := range paths {
			trips := p.requests(t, httpRequests)
			p50.add(p.name, 1e3*percentile(trips, 0.5))
			p99.add(p.name, 1e3*percentile(trips, 0.99))
			before, began := processorTime(t, p.pids), time.Now()
			var clients sync.WaitGroup
			for range httpClients {
				clients.Go(func() { p.requests(t, httpBurst) })
			}
			clients.Wait()
			rates.add(p.name, httpClients*httpBurst/time.Since(began).Seconds())
			if len(p.pids) > 0 {
				cost.add(p.name, float64((processorTime(t, p.pids)-before).Microseconds())/(httpClients*httpBurst))
			}
		}
	}
	for _, measured := range []*rounds{p50, p99, rates} {
		measured.report(r, "HTTP/1.1", "direct")
	}
	cost.report(r, "HTTP/1.1", "nginx")
	of := func(measure string) float64 {
		return r.value(measure, "porin") / r.value(measure, "nginx")
	}
	r.atLeast("HTTP/1.1 requests for each processor, of nginx'", 1/of("processor of the proxy, a request, HTTP/1.1"), 0.7, "")
	r.atMost("HTTP/1.1 request p50, of nginx'", of("request p50, HTTP/1.1"), 1.2, "")
	r.atMost("HTTP/1.1 request p50, added to direct", r.value("request p50, HTTP/1.1", "porin")-r.value("request p50, HTTP/1.1", "direct"), 60, "us")
}

// requests sends requests one after the other on a connection, and returns how long each took, in milliseconds.
func (p httpPath) requests(t *testing.T, n int) []time.Duration {
	conn, err := p.from.Dial(p.to, 5*time.Second)
	if err != nil {
		t.Error(err)
		return make([]time.Duration, n)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	request := []byte("GET /public/items HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	trips := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		if _, err := conn.Write(request); err != nil {
			t.Error(err)
			break
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", p.name, response, err)
			break
		}
		_, _ = io.Copy(io.Discard, response.Body)
		trips = append(trips, time.Since(began))
	}
	return trips
}

// httpServer serves HTTP in a namespace until the test ends.
type httpServer func(t *testing.T, ns *testutil.Namespace, addr netip.AddrPort)

// nginxHTTP1 is the part of nginx' configuration that forwards to a server.
func nginxHTTP1(listen, server string) string {
	return fmt.Sprintf(`upstream pod { server %s; keepalive 64; keepalive_requests 1000000000; }
	server { listen %s; location / { proxy_pass http://pod; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; } }`, server, listen)
}

// serveHTTP answers each request that it reads to its end with the same bytes: it should cost as little as possible.
func serveHTTP(t *testing.T, ns *testutil.Namespace, addr netip.AddrPort) {
	t.Helper()
	listener := ns.Listen(t, addr)
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	t.Cleanup(func() { listener.Close() })
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			served.Go(func() { answerRequests(conn) })
		}
	})
}

// answerRequests ends with the connection.
func answerRequests(conn net.Conn) {
	response := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nhello, world")
	buffer, have := make([]byte, 4096), 0
	for {
		n, err := conn.Read(buffer[have:])
		if err != nil {
			return
		}
		have += n
		for {
			end := bytes.Index(buffer[:have], []byte("\r\n\r\n"))
			if end < 0 {
				break
			}
			if _, err := conn.Write(response); err != nil {
				return
			}
			have = copy(buffer, buffer[end+4:have])
		}
	}
}

// directHTTP is a node whose pods have no rules.
func directHTTP(t *testing.T, serve httpServer) httpPath {
	t.Helper()
	p := attached(t, porin(t, "direct", "10.200.0.0/16,fd00:200::/64"))
	to := netip.AddrPortFrom(p.addr, httpPort)
	serve(t, p.to, to)
	return httpPath{name: "direct", from: p.from, to: to}
}

// relayHTTP has a process in between that knows nothing of HTTP. What its threads have used is lost when they end with
// their connections.
func relayHTTP(t *testing.T, serve httpServer) httpPath {
	t.Helper()
	from, to := relayed(t, "tcp", httpPort, serve)
	return httpPath{name: "relay", from: from, to: to}
}

// porinHTTP has the rule for the server.
func porinHTTP(t *testing.T, serve httpServer) httpPath {
	t.Helper()
	s := porin(t, "porin", "10.200.0.0/16,fd00:200::/64")
	p := attached(t, s)
	to := netip.AddrPortFrom(p.addr, httpPort)
	serve(t, p.to, to)
	if err := s.agent.Do(http.MethodPut, "/v1/policy", httpRule, nil); err != nil {
		t.Fatal(err)
	}
	return httpPath{name: "porin", from: p.from, to: to, pids: []int{s.agent.PID()}}
}

// nginxHTTP is nginx as a plain reverse proxy with connections that are kept, on the node of client and server.
func nginxHTTP(t *testing.T, forward func(listen, server string) string, serve httpServer) httpPath {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("%v: install nginx-light", err)
	}
	s := porin(t, "nginx", "10.200.0.0/16,fd00:200::/64")
	p := attached(t, s)
	to := netip.AddrPortFrom(s.node.IPv4, httpPort)
	serve(t, p.to, netip.AddrPortFrom(p.addr, httpPort))
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; worker_processes %[3]d; error_log stderr crit; pid %[1]s/pid;
events { worker_connections 8192; }
http {
	access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	keepalive_requests 1000000000;
	%[2]s
}
`, dir, forward(to.String(), netip.AddrPortFrom(p.addr, httpPort).String()), nginxWorkers)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", config)
	cmd.Stderr = os.Stderr
	if err := s.node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	var workers []int
	testutil.Eventually(t, func() error {
		conn, err := p.from.Dial(to, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if workers = childrenOf(t, cmd.Process.Pid); len(workers) != nginxWorkers {
			return fmt.Errorf("nginx has %d workers, want %d", len(workers), nginxWorkers)
		}
		return nil
	})
	return httpPath{name: "nginx", from: p.from, to: to, pids: append(workers, cmd.Process.Pid)}
}

const nginxWorkers = 2

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

// processorTime is what the threads of the processes have used that live (proc(5), /proc/PID/schedstat).
func processorTime(t *testing.T, pids []int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("process %d: %v", pid, err)
		}
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			if used, _, ok := strings.Cut(string(text), " "); ok {
				nanoseconds, err := strconv.ParseInt(used, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += time.Duration(nanoseconds)
			}
		}
	}
	return sum
}
