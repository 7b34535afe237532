package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// TestStreamsInModeSwitch changes the devices between two nodes while streams between their pods go on. Both nodes have
// the rule of kube-proxy that drops packets that conntrack takes for invalid.
func TestStreamsInModeSwitch(t *testing.T) {
	t.Parallel()
	c := newNodes(t, testutil.NewLAN(t), 2)
	one, two := c.nodes[0], c.nodes[1]
	var filter iptablesTable
	filter.filterBase()
	for _, r := range c.nodes {
		strict(t, r.node)
		for _, six := range []bool{false, true} {
			onNode(t, r.node, filter.String("filter"), iptablesMode{}.program(r.node, six, "restore"), "--wait")
		}
	}
	a, b := one.pod(), two.pod()
	c.waitForMesh([]pod{a, b})
	var streams []*endlessStream
	for _, pair := range [][2]pod{{a, b}, {b, a}} {
		for _, addr := range []netip.Addr{pair[1].ipv4, pair[1].ipv6} {
			streams = append(streams, newEndlessStream(t, pair[0].Namespace, pair[1].Namespace, addr))
		}
	}
	for _, step := range []struct {
		rig            *rig
		routing, reach string
	}{
		{one, "vxlan", "tunnel"}, {two, "vxlan", "tunnel"}, {one, "native", "tunnel"}, {two, "native", "route"},
	} {
		step.rig.agent.Stop(t)
		step.rig.configure("--routing=" + step.routing)
		step.rig.agent.Start(t)
		for _, r := range c.nodes {
			testutil.Eventually(t, func() error {
				if ways := r.reach(); !slices.Equal(ways, []string{step.reach}) {
					return fmt.Errorf("%s reaches the other by %q, want %q", r.node.Name, ways, step.reach)
				}
				return nil
			})
		}
		for _, s := range streams {
			s.goesOn()
		}
	}
	for _, s := range streams {
		s.end()
	}
	for _, r := range c.nodes {
		for _, six := range []bool{false, true} {
			if n := (iptablesMode{}).invalid(t, r.node, six); n > 0 {
				t.Errorf("%s: %d packets were dropped as invalid", r.node.Name, n)
			}
		}
	}
}

// endlessStream is a connection on which one side sends and the other receives, until it ends.
type endlessStream struct {
	testing.TB
	name           string
	client, server net.Conn
	writing        chan error
	reading        chan error
	sent, received atomic.Int64
}

func newEndlessStream(t testing.TB, from, to *testutil.Namespace, addr netip.Addr) *endlessStream {
	t.Helper()
	listener := to.Listen(t, netip.AddrPortFrom(addr, 0))
	defer listener.Close()
	client, err := from.Dial(netip.AddrPortFrom(addr, listener.Addr().(*net.TCPAddr).AddrPort().Port()), reach)
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := &endlessStream{TB: t, name: "the stream to " + addr.String(), client: client, server: server, writing: make(chan error, 1), reading: make(chan error, 1)}
	t.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			n, err := client.Write(chunk)
			s.sent.Add(int64(n))
			if err != nil {
				s.writing <- err
				return
			}
		}
	}()
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			n, err := server.Read(chunk)
			s.received.Add(int64(n))
			if err != nil {
				s.reading <- err
				return
			}
		}
	}()
	return s
}

// goesOn wants more than the buffers of the two sides to arrive.
func (s *endlessStream) goesOn() {
	s.Helper()
	const more = 32 << 20
	want := s.received.Load() + more
	testutil.Eventually(s, func() error {
		if n := s.received.Load(); n < want {
			return fmt.Errorf("%s stands at %d bytes, want %d", s.name, n, want)
		}
		return nil
	})
}

// end wants all that was sent to arrive.
func (s *endlessStream) end() {
	s.Helper()
	_ = s.client.SetWriteDeadline(time.Now())
	if err := <-s.writing; !errors.Is(err, os.ErrDeadlineExceeded) {
		s.Errorf("%s: %v", s.name, err)
	}
	if err := errors.Join(s.client.(*net.TCPConn).CloseWrite(), s.server.SetReadDeadline(time.Now().Add(testutil.Patience))); err != nil {
		s.Error(err)
	}
	if err := <-s.reading; !errors.Is(err, io.EOF) || s.received.Load() != s.sent.Load() {
		s.Errorf("%s: %v, %d of %d bytes arrived", s.name, err, s.received.Load(), s.sent.Load())
	}
}
