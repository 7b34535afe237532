package hostfilter_test

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

// TestNextAgentKeepsNumbers has an agent whose groups have other numbers: it writes nothing.
func TestNextAgentKeepsNumbers(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	desired := func(a, b hostfilter.Group) hostfilter.Desired {
		return hostfilter.Desired{
			Pods:     []hostfilter.Pod{{Link: p.link, OfGroup: map[hostfilter.Group][]hostfilter.Row{a: toPorts(), b: {{Allow: true}}}}},
			Enforced: []int{p.link},
			Groups:   map[netip.Addr]hostfilter.Group{h.addrs[0]: a, h.addrs[1]: b},
		}
	}
	h.apply(t, desired(7, 8))
	before := h.generation(t)
	must(t, h.newFilter(t).Apply(desired(23, 5)))
	h.apply(t, desired(8, 7))
	if after := h.generation(t); after != before {
		t.Errorf("%d transactions for groups that are the same", after-before)
	}
}

// TestNoRowIsDenied has a packet whose pod has no rows, as between two lookups beside a change.
func TestNoRowIsDenied(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	at := netip.AddrPortFrom(h.addrs[0], allowedPort)
	service(t, h.Namespace, at)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: []hostfilter.Row{{Allow: true}}}}, Enforced: []int{p.link}})
	h.wantReaches(t, p.Namespace, "tcp", at, true)
	h.rules(t, "flush map inet porin others\n", "nft", "-f", "-")
	h.wantReaches(t, p.Namespace, "tcp", at, false)
}

// TestSharedRows has pods with the same rows, which the table has once.
func TestSharedRows(t *testing.T) {
	h := newHost(t)
	p, q := h.newPeer(t), h.newPeer(t)
	one, other := hostfilter.Pod{Link: p.link, Rows: toPorts()}, hostfilter.Pod{Link: q.link, Rows: toPorts()}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{one}, Enforced: []int{p.link, q.link}})
	want := strings.Count(h.list(t), "tcp")
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{one, other}, Enforced: []int{p.link, q.link}})
	if got := strings.Count(h.list(t), "tcp"); got != want || want == 0 {
		t.Errorf("the table has %d elements of TCP, want the %d of one pod:\n%s", got, want, h.list(t))
	}
}

// TestChangesBesidePackets sends packets to a denied port of an address, while rows and groups change all the time that
// deny it before and after: none arrives.
func TestChangesBesidePackets(t *testing.T) {
	udp := func(first, last uint16) hostfilter.Row {
		return hostfilter.Row{Protocol: unix.IPPROTO_UDP, First: first, Last: last, Allow: true}
	}
	allButDenied := []hostfilter.Row{{Protocol: unix.IPPROTO_UDP, Last: 65535}, udp(0, deniedPort-1), udp(deniedPort+1, 65535), {Allow: true}}
	allButTwo := []hostfilter.Row{{Protocol: unix.IPPROTO_UDP, Last: 65535}, udp(0, deniedPort-2), udp(deniedPort+1, 65535), {Allow: true}}
	allButUDP := []hostfilter.Row{{Protocol: unix.IPPROTO_UDP, Last: 65535}, {Allow: true}}
	denied, allowed := []hostfilter.Row{{}}, []hostfilter.Row{{Allow: true}}
	for name, states := range map[string][2]struct {
		rows    []hostfilter.Row
		ofGroup map[hostfilter.Group][]hostfilter.Row
		groups  [2]hostfilter.Group // of the address, and of another one; 0: none
	}{
		"ranges":                                 {{rows: allButDenied}, {rows: allButTwo}},
		"nothing, and all but the protocol":      {{rows: denied}, {rows: allButUDP}},
		"nothing, and all but the port":          {{rows: denied}, {rows: allButDenied}},
		"the pod gains rows for a group in use":  {{rows: denied, groups: [2]hostfilter.Group{1}}, {rows: denied, ofGroup: map[hostfilter.Group][]hostfilter.Row{1: allButUDP}, groups: [2]hostfilter.Group{1}}},
		"the pod's rows for all others are open": {{rows: allowed, ofGroup: map[hostfilter.Group][]hostfilter.Row{1: denied}, groups: [2]hostfilter.Group{1}}, {rows: denied}},
		"a group splits": {
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: allButDenied}, groups: [2]hostfilter.Group{1, 1}},
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: denied, 2: allowed}, groups: [2]hostfilter.Group{1, 2}},
		},
		"a group goes": {
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{1: allButDenied, 2: allowed}, groups: [2]hostfilter.Group{1, 2}},
			{ofGroup: map[hostfilter.Group][]hostfilter.Row{2: allowed}, groups: [2]hostfilter.Group{0, 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p, q := h.newPeer(t), h.newPeer(t)
			at := netip.AddrPortFrom(h.addrs[0], deniedPort)
			arrived := countPackets(t, h.Namespace, at)
			apply := func(i int) {
				s := states[i%2]
				groups := map[netip.Addr]hostfilter.Group{}
				other := hostfilter.Pod{Link: q.link, Rows: allowed, OfGroup: map[hostfilter.Group][]hostfilter.Row{}}
				for n, group := range s.groups {
					if group != 0 {
						groups[h.addrs[n]], other.OfGroup[group] = group, allowed
					}
				}
				pods := []hostfilter.Pod{{Link: p.link, Rows: s.rows, OfGroup: s.ofGroup}, other}
				h.apply(t, hostfilter.Desired{Pods: pods, Enforced: []int{p.link, q.link}, Groups: groups})
			}
			apply(0)
			c, err := dial(p.Namespace, "udp", at, unreachable)
			must(t, err)
			defer c.Close()
			var sending sync.WaitGroup
			var sent atomic.Int64
			stop := make(chan struct{})
			for range 2 {
				sending.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							_, _ = c.Write([]byte("hello"))
							sent.Add(1)
						}
					}
				})
			}
			before := h.generation(t)
			changes := uint32(300)
			if testutil.Full() {
				changes = 6000
			}
			for i := range changes {
				apply(int(i) + 1)
			}
			close(stop)
			sending.Wait()
			t.Logf("%d packets", sent.Load())
			if after := h.generation(t); after != before+changes {
				t.Errorf("%d changes took %d transactions", changes, after-before)
			}
			if n := arrived(); n > 0 {
				t.Errorf("%d packets to a denied port have arrived", n)
			}
		})
	}
}

// countPackets listens at a UDP port. The function that it returns says how many packets have come.
func countPackets(t *testing.T, n *testutil.Namespace, at netip.AddrPort) func() int64 {
	t.Helper()
	var sink net.PacketConn
	must(t, n.Do(func() (err error) {
		sink, err = net.ListenPacket("udp", at.String())
		return err
	}))
	var arrived atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buffer := make([]byte, 64); ; {
			if _, _, err := sink.ReadFrom(buffer); err != nil {
				return
			}
			arrived.Add(1)
		}
	}()
	t.Cleanup(func() { _ = sink.Close() })
	return func() int64 {
		_ = sink.Close()
		<-done
		return arrived.Load()
	}
}
