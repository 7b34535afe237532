package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/interop/grpc_testing"

	"porin.dev/porin/internal/testutil"
)

// switched is a connection whose protocol was switched, as by a WebSocket.
type switched struct {
	net.Conn
	from *bufio.Reader
}

func (n *serviceNodes) switchProtocol(server netip.AddrPort) switched {
	n.Helper()
	conn, err := n.a.Dial(server, 5*time.Second)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { conn.Close() })
	s := switched{conn, bufio.NewReader(conn)}
	if _, err := fmt.Fprintf(conn, "GET /public/echo HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		n.Fatal(err)
	}
	response, err := http.ReadResponse(s.from, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		n.Fatalf("%+v, %v", response, err)
	}
	return s
}

func (s switched) echoes() error {
	const text = "still here"
	if err := s.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(s, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(s.from, got); err != nil || string(got) != text {
		return fmt.Errorf("%q, %w", got, err)
	}
	return nil
}

// calls has one client of gRPC call one method again and again.
func (n *serviceNodes) calls(to party) *load {
	l := &load{stopped: make(chan struct{})}
	client := grpcClient(n.T, n.a, to.at(false, webPort))
	l.wait.Go(func() {
		for {
			select {
			case <-l.stopped:
				return
			case <-time.After(time.Millisecond):
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
			cancel()
			l.requests.Add(1)
			if err != nil {
				l.fails.Add(1)
				l.mu.Lock()
				l.errs = append(l.errs, fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err))
				l.mu.Unlock()
			}
		}
	})
	n.Cleanup(l.end)
	return l
}

// TestExternalProxyStopped stops the proxy while a connection is open whose protocol was switched. Until that is cut,
// at the end of --drain-timeout, everything else goes on; then it waits for the next proxy.
func TestExternalProxyStopped(t *testing.T) {
	n, previous := newExternal(t)
	p := startProxy(t, n.one.node, "--drain-timeout=6s")
	previous.ended()
	n.one.connected(p)
	n.ciliumPolicy(strings.Replace(webAndNames, "egress: [", `egress: [{toPorts: [{ports: [{port: "8081", protocol: TCP}], rules: {http: [{path: "/grpc.testing.TestService/UnaryCall"}]}}]}, `, 1))
	serveNames(t, n.b)
	serveNames(t, n.d)
	serveGRPC(t, n.c)
	open := n.switchProtocol(n.d.at(false, webPort))
	l, kept, queries, calls := n.load(false), n.load(true), n.queries(), n.calls(n.c)
	time.Sleep(time.Second)
	p.signal(unix.SIGTERM)
	time.Sleep(time.Second)
	rounds := 0
	for began := time.Now(); time.Since(began) < 3*time.Second; rounds++ {
		if status, body, err := get(webClient(t, n.a.Namespace, false), n.b.at(false, webPort), "/public/x"); err != nil || status != http.StatusOK {
			t.Errorf("a request while the proxy stops: %d %q, %v", status, body, err)
		}
		if answer, err := n.a.resolve("udp", n.b.at(false, dnsPort), "www.example.com."); err != nil || answer.Rcode != dns.RcodeSuccess {
			t.Errorf("a query while the proxy stops: %v, %v", answer, err)
		}
		if err := open.echoes(); err != nil {
			t.Errorf("the connection that was open: %v", err)
		}
	}
	select {
	case <-p.done:
		t.Errorf("the proxy has ended before its --drain-timeout, after %d rounds", rounds)
	default:
	}
	p.ended()
	if err := open.echoes(); err == nil {
		t.Error("the connection that was open outlives the proxy")
	}
	next := startProxy(t, n.one.node)
	n.one.connected(next)
	time.Sleep(time.Second)
	l.check(t, "new connections")
	kept.check(t, "kept connections")
	queries.check(t, "queries")
	calls.check(t, "calls of gRPC")
	n.one.agrees()
}

// TestExternalProxyReplacedWhileItStops: a proxy that was told to stop, and still has a request, is replaced at once,
// or a second later.
func TestExternalProxyReplacedWhileItStops(t *testing.T) {
	for _, later := range []time.Duration{0, time.Second} {
		t.Run(later.String(), func(t *testing.T) { replaceStopping(t, later) })
	}
}

func replaceStopping(t *testing.T, later time.Duration) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	open, request := n.switchProtocol(n.d.at(false, webPort)), n.stream(n.d.at(false, webPort))
	l, kept, queries := n.load(false), n.load(true), n.queries()
	p.signal(unix.SIGTERM)
	time.Sleep(later)
	next := startProxy(t, n.one.node)
	n.one.connected(next)
	for _, six := range []bool{false, true} {
		checkHTTP(t, six, n.httpEgress(six)[:4])
	}
	select {
	case <-p.done:
		t.Error("the previous proxy has ended before its request")
	default:
	}
	if err := open.echoes(); err != nil {
		t.Errorf("a connection of the previous proxy: %v", err)
	}
	request.check(t, "a request of the previous proxy")
	open.Close()
	p.ended()
	l.check(t, "new connections")
	kept.check(t, "kept connections")
	queries.check(t, "queries")
	n.one.agrees()
}
