package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/testutil"
)

// remote is another machine, as the namespace of the tests reaches it.
type remote struct {
	*testutil.Namespace
	ipv4, ipv6 netip.Addr
}

func newRemote(t *testing.T) (local *testutil.Node, r remote) {
	t.Helper()
	fabric := testutil.NewFabric(t)
	a, b := fabric.NewNode(t), fabric.NewNode(t)
	for _, addr := range []netip.Addr{b.IPv4, b.IPv6} { // the links may just have come up
		if err := testutil.Ping(a.Namespace, addr, testutil.Patience); err != nil {
			t.Fatal(err)
		}
	}
	return a, remote{b.Namespace, b.IPv4, b.IPv6}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// ping asks from the namespace. The socket is opened on its thread.
func ping(ctx context.Context, from *testutil.Node, addr netip.Addr) (latency time.Duration, err error) {
	err = from.Do(func() error {
		latency, err = New().Ping(ctx, addr)
		return err
	})
	return latency, err
}

func TestPing(t *testing.T) {
	local, r := newRemote(t)
	for _, addr := range []netip.Addr{r.ipv4, r.ipv6} {
		latency, err := ping(within(t, time.Second), local, addr)
		if err != nil || latency <= 0 || latency > time.Second {
			t.Errorf("%s: %v, %v", addr, latency, err)
		}
	}
}

func TestPingUnanswered(t *testing.T) {
	local, r := newRemote(t)
	r.Sysctl(t, "net/ipv4/icmp_echo_ignore_all", "1")
	if _, err := ping(within(t, 200*time.Millisecond), local, r.ipv4); !errors.Is(err, probe.ErrTimeout) {
		t.Errorf("error %v, want %v", err, probe.ErrTimeout)
	}
	if _, err := ping(within(t, 200*time.Millisecond), local, netip.MustParseAddr("203.0.113.1")); err == nil {
		t.Error("an address without a route answers")
	}
}

// TestPingFiltered: what keeps a question from leaving is this node's own firewall, and no capability that is missing.
func TestPingFiltered(t *testing.T) {
	testutil.NeedPrograms(t, "nft")
	local, r := newRemote(t)
	rules := "table inet t { chain c { type filter hook output priority 0; icmp type echo-request drop; icmpv6 type echo-request drop; }; }"
	if err := local.Do(func() error { return exec.Command("nft", rules).Run() }); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{r.ipv4, r.ipv6} {
		if _, err := ping(within(t, time.Second), local, addr); !errors.Is(err, errFiltered) {
			t.Errorf("%s: error %v, want %v", addr, err, errFiltered)
		}
	}
}

// A node that has no address of a family cannot ask by it.
func TestPingWithoutSource(t *testing.T) {
	local, r := newRemote(t)
	for _, prefix := range []netip.Prefix{netip.PrefixFrom(local.IPv4, 32), netip.PrefixFrom(local.IPv6, 128)} {
		link := local.Link(t, "eth0")
		if err := local.Netlink(t).AddrDel(link, testutil.Address(prefix)); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range []netip.Addr{r.ipv4, r.ipv6} {
		if _, err := ping(within(t, time.Second), local, addr); !errors.Is(err, probe.ErrNoSource) && !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("%s: error %v, want %v", addr, err, probe.ErrNoSource)
		}
	}
}

// A hostile machine answers each question, before the kernel would, with all that it does not know left wrong.
func TestPingForgedReply(t *testing.T) {
	local, r := newRemote(t)
	r.Sysctl(t, "net/ipv4/icmp_echo_ignore_all", "1")
	var conn *icmp.PacketConn
	if err := r.Do(func() (err error) { conn, err = icmp.ListenPacket("ip4:icmp", r.ipv4.String()); return err }); err != nil {
		t.Fatal(err)
	}
	forged := make(chan int)
	go func() {
		n, buffer := 0, make([]byte, 1500)
		defer func() { forged <- n }()
		for {
			size, peer, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			question, err := icmp.ParseMessage(1, buffer[:size])
			if err != nil || question.Type != ipv4.ICMPTypeEcho {
				continue
			}
			echo := question.Body.(*icmp.Echo)
			for _, answer := range []*icmp.Echo{
				{ID: echo.ID, Seq: echo.Seq, Data: []byte("sixteen bytes...")},
				{ID: echo.ID ^ 1, Seq: echo.Seq, Data: echo.Data},
				{ID: echo.ID, Seq: echo.Seq + 1, Data: echo.Data},
				{ID: echo.ID, Seq: echo.Seq},
			} {
				packet, _ := (&icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: answer}).Marshal(nil)
				_, _ = conn.WriteTo(packet, peer)
				n++
			}
			_, _ = conn.WriteTo([]byte{0}, peer)
		}
	}()
	_, err := ping(within(t, 500*time.Millisecond), local, r.ipv4)
	_ = conn.Close()
	if n := <-forged; n == 0 || !errors.Is(err, probe.ErrTimeout) {
		t.Errorf("with %d forged answers: error %v, want %v", n, err, probe.ErrTimeout)
	}
}

func TestPingFloodFromElsewhere(t *testing.T) {
	local, r := newRemote(t)
	// Another address of the remote, whose packets must not reach the socket of the probe.
	other := netip.MustParseAddr("192.0.2.77")
	if err := r.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(other, 32))); err != nil {
		t.Fatal(err)
	}
	var conn net.PacketConn
	if err := r.Do(func() (err error) {
		conn, err = net.ListenPacket("ip4:icmp", other.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	target, stop, stopped := local.IPv4, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		packet, _ := (&icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: &icmp.Echo{ID: 1, Data: make([]byte, 16)}}).Marshal(nil)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = conn.WriteTo(packet, &net.IPAddr{IP: target.AsSlice()})
			}
		}
	}()
	answered := 0
	for range 20 {
		if _, err := ping(within(t, time.Second), local, r.ipv4); err == nil { // the links may drop one
			answered++
		}
	}
	if answered < 10 {
		t.Errorf("under a flood from %s, %d of 20 were answered", other, answered)
	}
	close(stop)
	<-stopped
	_ = conn.Close()
}

// serve answers HTTP on the health port of the remote's IPv4 address.
func (r remote) serve(t *testing.T, handler http.HandlerFunc) {
	t.Helper()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	listener := r.Listen(t, netip.AddrPortFrom(r.ipv4, probe.Port))
	ended := make(chan struct{})
	go func() { _ = server.Serve(listener); close(ended) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
}

// sayHello asks by sockets of the local namespace.
func sayHello(ctx context.Context, local *testutil.Node, addr netip.Addr) (node string, err error) {
	n := New()
	n.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = local.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	node, _, err = n.Hello(ctx, addr)
	return node, err
}

func TestHello(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	for name, row := range map[string]struct {
		handler http.HandlerFunc
		want    error
	}{
		"well":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"node":"node2","more":1}`)) }, nil},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, probe.ErrAnswer},
		"no node": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }, probe.ErrAnswer},
		"status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, probe.ErrAnswer},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, probe.ErrAnswer},
		"endless body": {endless, probe.ErrAnswer},
		"large header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 64<<10)) }, probe.ErrAnswer},
		"hangs":        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, probe.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			local, r := newRemote(t)
			r.serve(t, row.handler)
			node, err := sayHello(within(t, time.Second), local, r.ipv4)
			if !errors.Is(err, row.want) || row.want == nil && (err != nil || node != "node2") {
				t.Errorf("node %q, error %v, want %v", node, err, row.want)
			}
		})
	}
}

func TestHelloRefused(t *testing.T) {
	local, r := newRemote(t)
	if _, err := sayHello(within(t, testutil.Patience), local, r.ipv6); !errors.Is(err, probe.ErrRefused) {
		t.Errorf("error %v, want %v", err, probe.ErrRefused)
	}
}

func TestPlain(t *testing.T) {
	for _, err := range []error{os.ErrDeadlineExceeded, context.DeadlineExceeded, fmt.Errorf("get: %w", context.DeadlineExceeded)} {
		if !errors.Is(plain(err), probe.ErrTimeout) {
			t.Errorf("%v is %v", err, plain(err))
		}
	}
}
