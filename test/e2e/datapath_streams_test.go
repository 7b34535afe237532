package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// streamed is how much goes through one connection, and streamTime how long that may take.
const (
	streamed   = 32 << 20
	streamTime = 30 * time.Second
)

// party is a host or pod with an address of each family.
type party struct {
	name string
	*testutil.Namespace
	ipv4, ipv6 netip.Addr
}

// pairs are who speaks to whom.
func pairs(r *rig, a, b pod) [][2]party {
	one, other := party{"a container", a.Namespace, a.ipv4, a.ipv6}, party{"another container", b.Namespace, b.ipv4, b.ipv6}
	node := party{"the node", r.node.Namespace, r.node.IPv4, r.node.IPv6}
	return [][2]party{{one, other}, {one, node}, {node, one}}
}

func TestLargeStreams(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	for _, pair := range pairs(r, a, b) {
		for _, to := range []netip.Addr{pair[1].ipv4, pair[1].ipv6} {
			t.Run(fmt.Sprintf("%s to %s at %s", pair[0].name, pair[1].name, to), func(t *testing.T) {
				sent, got, err := stream(t, pair[0].Namespace, pair[1].Namespace, to)
				if err != nil || sent != got {
					t.Errorf("sent %x, got %x, %v", sent, got, err)
				}
			})
		}
	}
	// All of it in packets that the stack leaves whole (GSO): cut up, it would be several times as many.
	ep, err := r.api.Endpoint(context.Background(), "container-id:"+b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if in := ep.Traffic.ToPod; in.Bytes < 2*streamed || in.Bytes/in.Packets < 3000 {
		t.Errorf("%d bytes came in %d packets", in.Bytes, in.Packets)
	}
}

// stream sends random bytes over one connection, and returns the digests of what went in and what came out.
func stream(t *testing.T, from, to *testutil.Namespace, addr netip.Addr) (sent, got [sha256.Size]byte, err error) {
	t.Helper()
	listener := to.Listen(t, netip.AddrPortFrom(addr, 0))
	writing := make(chan error, 1)
	go func() {
		port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
		conn, err := from.Dial(netip.AddrPortFrom(addr, port), reach)
		if err == nil {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(streamTime))
			hash := sha256.New()
			_, err = io.Copy(io.MultiWriter(conn, hash), io.LimitReader(rand.NewChaCha8([32]byte{}), streamed))
			hash.Sum(sent[:0])
		}
		if err != nil {
			listener.Close()
		}
		writing <- err
	}()
	conn, err := listener.Accept()
	if err != nil {
		err = <-writing
		return sent, got, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(streamTime))
	hash := sha256.New()
	_, err = io.Copy(hash, conn)
	hash.Sum(got[:0])
	if failed := <-writing; failed != nil {
		err = failed
	}
	return sent, got, err
}

func TestFragmentedDatagrams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.pod(), r.pod()
	for _, pair := range pairs(r, a, b) {
		for _, to := range []netip.Addr{pair[1].ipv4, pair[1].ipv6} {
			for _, size := range []int{1, 1472, 1473, 4000, 60_000} {
				if err := datagram(t, pair[0].Namespace, pair[1].Namespace, to, size); err != nil {
					t.Errorf("%d bytes from %s to %s at %s: %v", size, pair[0].name, pair[1].name, to, err)
				}
			}
		}
	}
}

// datagram sends one of that size, and compares what comes out.
func datagram(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, size int) error {
	t.Helper()
	return datagramWithin(t, from, to, addr, size, reach)
}

func datagramWithin(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, size int, within time.Duration) error {
	t.Helper()
	in, out := listenUDP(t, to, addr), listenUDP(t, from, netip.Addr{})
	sent, got := make([]byte, size), make([]byte, 1<<16)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	if _, err := out.WriteToUDPAddrPort(sent, netip.AddrPortFrom(addr, portOf(in))); err != nil {
		return err
	}
	_ = in.SetReadDeadline(time.Now().Add(within))
	n, err := in.Read(got)
	if err != nil {
		return err
	}
	if string(got[:n]) != string(sent) {
		return fmt.Errorf("%d bytes came, and others than were sent", n)
	}
	return nil
}

// listenUDP opens a socket on the address, or on any when it is zero, and a free port. It is closed with the test.
func listenUDP(t testing.TB, ns *testutil.Namespace, addr netip.Addr) (conn *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func portOf(conn *net.UDPConn) uint16 { return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }
