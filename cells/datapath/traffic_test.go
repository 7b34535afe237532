package datapath_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// echo sends a line from one namespace to a listener in another and wants it back.
func echo(t testing.TB, from, to *testutil.Namespace, network string, addr netip.Addr) error {
	t.Helper()
	var listener net.Listener
	err := to.Do(func() (err error) {
		listener, err = net.Listen(network, netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	defer func() { listener.Close(); <-done }()
	return from.Do(func() error {
		conn, err := net.DialTimeout(network, listener.Addr().String(), testutil.Patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			return err
		}
		got := make([]byte, 6)
		_, err = io.ReadFull(conn, got)
		return err
	})
}

// unreachable is how long is waited for a reply that must not come.
const unreachable = 300 * time.Millisecond

// ping sends an ICMP echo request from a namespace and waits for the reply.
func ping(from *testutil.Namespace, addr netip.Addr) error {
	return pingWithin(testutil.Patience, from, addr)
}

func pingWithin(wait time.Duration, from *testutil.Namespace, addr netip.Addr) error {
	return from.Do(func() error {
		family, proto, request := unix.AF_INET6, unix.IPPROTO_ICMPV6, byte(128)
		var to unix.Sockaddr = &unix.SockaddrInet6{Addr: addr.As16()}
		if addr.Is4() {
			family, proto, request = unix.AF_INET, unix.IPPROTO_ICMP, byte(8)
			to = &unix.SockaddrInet4{Addr: addr.As4()}
		}
		// Let every group open ICMP sockets in this namespace.
		if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
			return err
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		timeout := unix.NsecToTimeval(wait.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return err
		}
		if err := unix.Sendto(fd, []byte{request, 0, 0, 0, 0, 0, 0, 1, 'p'}, 0, to); err != nil {
			return err
		}
		buf := make([]byte, 64)
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || n != 9 {
			return fmt.Errorf("no reply from %s: %d bytes, %w", addr, n, err)
		}
		return nil
	})
}

func TestTraffic(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	nodeAddrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, addr := range nodeAddrs {
		must(t, n.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(hostPrefix(addr))))
	}
	ways := []struct {
		name     string
		from, to *testutil.Namespace
		addrs    []netip.Addr
	}{
		{"pod to pod", a.Namespace, b.Namespace, b.endpoint.Addresses.List()},
		{"pod to node", a.Namespace, n.Namespace, nodeAddrs},
		{"node to pod", n.Namespace, a.Namespace, a.endpoint.Addresses.List()},
	}
	for _, way := range ways {
		for _, addr := range way.addrs {
			if err := echo(t, way.from, way.to, "tcp", addr); err != nil {
				t.Errorf("TCP %s %s: %v", way.name, addr, err)
			}
			if err := ping(way.from, addr); err != nil {
				t.Errorf("ping %s %s: %v", way.name, addr, err)
			}
		}
	}
	for _, p := range []*pod{a, b} {
		counted, err := n.datapath.Counters().Traffic(p.endpoint.ID)
		if err != nil {
			t.Fatal(err)
		}
		if counted.FromPod.Packets == 0 || counted.ToPod.Packets == 0 {
			t.Errorf("%s: counted %+v, want packets both ways", p.endpoint.Spec.Attachment, counted)
		}
		for _, reason := range abi.DropReasons() {
			if n := counted.Drops[reason]; n > 0 && reason != abi.DropLinkLocal {
				t.Errorf("%s: dropped %d packets for %s", p.endpoint.Spec.Attachment, n, reason)
			}
		}
	}
}

func TestTrafficAfterDetach(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	n.detach(t, b)
	for _, addr := range b.endpoint.Addresses.List() {
		if err := pingWithin(unreachable, a.Namespace, addr); err == nil {
			t.Errorf("%s still answers", addr)
		}
	}
	if n.HasLink(t, b.index()) {
		t.Error("the host end is there")
	}
	routes, err := n.Routes(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Protocol == testutil.RouteProtocol && r.LinkIndex != a.endpoint.Host.Index {
			t.Errorf("route %+v is left", r)
		}
	}
	n.detach(t, b) // the second time is a success
	if _, err := n.step.Prune(context.Background(), nil); err != nil {
		t.Error(err)
	}
}
