package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// remoteFixture has another node beyond eve's link, which is an uplink here: a pod of it is carol.
type remoteFixture struct {
	*fixture
	carol    party
	v6       bool
	udp      bool
	revision uint32 // of alice's policy
}

func newRemoteFixture(t testing.TB) *remoteFixture {
	t.Helper()
	f := &remoteFixture{fixture: load(t), carol: party{ip4: addr("10.1.0.9"), ip6: addr("fd01::9")}}
	handle := f.netns.Netlink(t)
	for _, name := range []string{"net/ipv4/conf/all/forwarding", "net/ipv6/conf/all/forwarding"} {
		f.netns.Sysctl(t, name, "1")
	}
	for i, p := range []party{f.alice, f.bob, f.eve} {
		if err := handle.LinkSetUp(testutil.LinkAt(p.index)); err != nil {
			t.Fatal(err)
		}
		if err := handle.LinkSetUp(f.netns.Link(t, string(rune('a'+i))+"peer")); err != nil {
			t.Fatal(err)
		}
	}
	for block, gateway := range map[string]string{"10.1.0.0/24": "192.0.2.7", "fd01::/64": "2001:db8::7"} {
		prefix, via := netip.MustParsePrefix(block), addr(gateway)
		route := testutil.GatewayRoute(f.eve.index, prefix, via)
		route.Flags = int(netlink.FLAG_ONLINK)
		if err := handle.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		if err := f.objects.RemoteBlocks.Put(abi.CIDRKeyOf(prefix), uint32(1)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// eachKind runs a test with both families and protocols.
func (f *remoteFixture) eachKind(t *testing.T, test func(t *testing.T)) {
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			f.v6, f.udp = v6, udp
			name := map[bool]string{false: "ipv4", true: "ipv6"}[v6] + map[bool]string{false: " tcp", true: " udp"}[udp]
			t.Run(name, func(t *testing.T) {
				f.reset(t)
				loadConntrack(t, f.netns)
				test(t)
			})
		}
	}
}

func (f *remoteFixture) ends() (alice, carol netip.AddrPort) {
	if f.v6 {
		return netip.AddrPortFrom(f.alice.ip6, 1000), netip.AddrPortFrom(f.carol.ip6, 80)
	}
	return netip.AddrPortFrom(f.alice.ip4, 1000), netip.AddrPortFrom(f.carol.ip4, 80)
}

func (f *remoteFixture) conversation() conversation {
	a, c := f.ends()
	return conversation{f.fixture, a, c, f.udp}
}

// out is a packet that alice sends to carol.
func (f *remoteFixture) out(t testing.TB, flags func(*layers.TCP)) (verdict uint32, frame []byte) {
	t.Helper()
	a, c := f.ends()
	return f.run(t, f.objects.FromPod, f.alice, f.conversation().frame(f.alice.mac, f.alice.hostMAC, a, c, flags))
}

// in is a packet of carol's to alice that comes by a device.
func (f *remoteFixture) in(t testing.TB, by party, flags func(*layers.TCP)) (verdict uint32, frame []byte) {
	t.Helper()
	a, c := f.ends()
	return f.run(t, f.objects.FromUplink, by, f.conversation().frame(by.mac, by.hostMAC, c, a, flags))
}

func (f *remoteFixture) wantPaths(t testing.TB, want ...uint8) {
	t.Helper()
	var paths []uint8
	for _, c := range f.connections(t) {
		paths = append(paths, c.Path)
	}
	if len(paths) != len(want) || len(want) == 1 && paths[0] != want[0] {
		t.Errorf("the entries have the paths %v, want %v", paths, want)
	}
}

// TestDirectPath has connections between pods of two nodes bypass the stack, opened by either.
func TestDirectPath(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		for _, openedHere := range []bool{true, false} {
			f.forgetConnections(t)
			first, second := syn, synACK
			for i := range 3 {
				if openedHere {
					got, _ := f.out(t, first)
					wantVerdict(t, "out of the pod", got, deliver)
					got, _ = f.in(t, f.eve, second)
					wantVerdict(t, "into the pod", got, deliver)
				} else {
					got, _ := f.in(t, f.eve, first)
					wantVerdict(t, "into the pod", got, deliver)
					got, _ = f.out(t, second)
					wantVerdict(t, "out of the pod", got, deliver)
				}
				first, second = ack, ack
				if i == 0 {
					f.wantPaths(t, abi.PathDirect)
				}
			}
		}
		if got := f.traffic(t, f.alice.id); got.FromPod.Packets != 6 || got.ToPod.Packets != 6 {
			t.Errorf("passed %+v, want 6 packets each way", got)
		}
	})
}

// TestDirectFrame: a packet loses a hop, and one into a pod is addressed to it.
func TestDirectFrame(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		a, c := f.ends()
		at := 14 + 8
		if f.v6 {
			at = 14 + 7
		}
		before := f.conversation().frame(f.alice.mac, f.alice.hostMAC, a, c, syn)[at]
		if _, out := f.out(t, syn); out[at] != before-1 {
			t.Errorf("a packet out of the pod has %d hops left, want %d", out[at], before-1)
		}
		_, in := f.in(t, f.eve, synACK)
		if in[at] != before-1 || string(in[:6]) != string(f.alice.mac) || string(in[6:12]) != string(f.alice.hostMAC) {
			t.Errorf("a packet into the pod is % x", in[:at+1])
		}
	})
}

// TestDirectNot leaves to the stack what it has to do with.
func TestDirectNot(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		fresh := func() { f.reset(t); loadConntrack(t, f.netns) }
		a, c := f.ends()

		f.conversation().addToConntrack(t, a, c, a)
		got, _ := f.out(t, ack)
		wantVerdict(t, "out, known to conntrack", got, toStack)
		f.wantPaths(t, abi.PathStack)
		f.forgetConnections(t)
		got, _ = f.in(t, f.eve, ack)
		wantVerdict(t, "in, known to conntrack", got, toNext)
		fresh()

		got, _ = f.in(t, f.bob, syn)
		wantVerdict(t, "in, by another device than the route's", got, toNext)
		_, _ = f.in(t, f.eve, syn)
		got, _ = f.in(t, f.bob, ack)
		wantVerdict(t, "in, by another device than before", got, toNext)
		fresh()

		foreign := f.carol
		f.carol = outside
		got, _ = f.in(t, f.eve, syn)
		wantVerdict(t, "in, from outside", got, toNext)
		got, _ = f.out(t, syn)
		wantVerdict(t, "out, to the outside", got, toStack)
		f.carol = foreign
		fresh()

		limited := abi.Endpoint{Ifindex: uint32(f.alice.index), Id: f.alice.id, Flags: abi.EndpointLimited,
			PodMac: abi.MAC{Byte: [6]byte(f.alice.mac)}, HostMac: abi.MAC{Byte: [6]byte(f.alice.hostMAC)}}
		if err := f.objects.Endpoints.Put(abi.AddrOf(a.Addr()), limited); err != nil {
			t.Fatal(err)
		}
		got, _ = f.in(t, f.eve, syn)
		wantVerdict(t, "in, to a limited pod", got, toNext)
		got, _ = f.out(t, syn)
		wantVerdict(t, "out, of a limited pod", got, toStack)
		f.register(t, f.alice)
		fresh()

		_, _ = f.out(t, syn)
		last := f.conversation().frame(f.eve.mac, f.eve.hostMAC, c, a, synACK)
		last = mangle(last, map[bool]int{false: 22, true: 21}[f.v6], 1)
		got, _ = f.run(t, f.objects.FromUplink, f.eve, last)
		wantVerdict(t, "in, on its last hop", got, toNext)

	})
}

// TestDirectRoutes: the kernel's routes decide where packets go, at any time.
func TestDirectRoutes(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		_, _ = f.out(t, syn)
		handle := f.netns.Netlink(t)
		block, via := "10.1.0.0/24", "192.0.2.7"
		if f.v6 {
			block, via = "fd01::/64", "2001:db8::7"
		}
		route := testutil.GatewayRoute(f.eve.index, netip.MustParsePrefix(block), addr(via))
		route.Flags = int(netlink.FLAG_ONLINK)
		if err := handle.RouteDel(route); err != nil {
			t.Fatal(err)
		}
		got, _ := f.out(t, ack)
		wantVerdict(t, "without a route", got, toStack)
		if err := handle.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		got, _ = f.out(t, ack)
		wantVerdict(t, "with a route again", got, deliver)
		if err := handle.LinkSetMTU(testutil.LinkAt(f.eve.index), 1400); err != nil {
			t.Fatal(err)
		}
		a, c := f.ends()
		long := append(f.conversation().frame(f.alice.mac, f.alice.hostMAC, a, c, ack), make([]byte, 1400)...)
		got, _ = f.run(t, f.objects.FromPod, f.alice, long)
		wantVerdict(t, "too long for the device", got, toStack)
		if err := handle.LinkSetMTU(testutil.LinkAt(f.eve.index), 1500); err != nil {
			t.Fatal(err)
		}
	})
}

// Tables of policy: none, and one without entries, which denies all.
const open, denied = 0, 7

// restrict gives alice another policy.
func (f *remoteFixture) restrict(t testing.TB, egress, ingress uint32) {
	t.Helper()
	f.revision++
	policy := abi.Policy{Revision: f.revision}
	for i := range policy.Egress {
		policy.Egress[i], policy.Ingress[i] = egress, ingress
	}
	if err := f.objects.Policies.Put(uint32(f.alice.id), policy); err != nil {
		t.Fatal(err)
	}
}

// TestRevokedConnectionIsKept: a policy revokes an open connection. Its entry stays as long as either end sends
// segments, so that these stay denied. A SYN does not prolong it.
func TestRevokedConnectionIsKept(t *testing.T) {
	f := newRemoteFixture(t)
	byStack := func(flags func(*layers.TCP)) uint32 {
		a, c := f.ends()
		frame := f.conversation().frame(f.alice.hostMAC, f.alice.mac, c, a, flags)
		return f.runFrom(t, f.objects.ToPod, f.alice, skBuff{IngressIfindex: uint32(f.eve.index)}, frame)
	}
	direct := func(flags func(*layers.TCP)) uint32 { got, _ := f.in(t, f.eve, flags); return got }
	sent := func(flags func(*layers.TCP)) uint32 { got, _ := f.out(t, flags); return got }
	for name, row := range map[string]struct {
		first, answer, revoked func(func(*layers.TCP)) uint32
		egress, ingress        uint32
	}{
		"the pod sends":                     {sent, direct, sent, denied, open},
		"the pod gets":                      {direct, sent, direct, open, denied},
		"the pod gets, by the node's stack": {byStack, sent, byStack, open, denied},
	} {
		t.Run(name, func(t *testing.T) {
			f.reset(t)
			loadConntrack(t, f.netns)
			f.restrict(t, open, open)
			row.first(syn)
			row.answer(synACK)
			f.restrict(t, row.egress, row.ingress)
			left := func(flags func(*layers.TCP)) uint32 {
				for key, c := range f.connections(t) {
					c.Expires = ticks(t) + 5
					if err := f.objects.Connections.Put(key, c); err != nil {
						t.Fatal(err)
					}
				}
				wantVerdict(t, "after the policy", row.revoked(flags), dropped)
				for _, c := range f.connections(t) {
					return c.Expires - ticks(t)
				}
				t.Fatal("the entry is gone")
				return 0
			}
			if got := left(ack); got < 7990 {
				t.Errorf("after a denied segment the entry lasts for %d s", got)
			}
			if got := left(syn); got > 5 {
				t.Errorf("after a denied SYN the entry lasts for %d s", got)
			}
		})
	}
}

// TestDirectPolicy: from_pod decides what the pod may open, from_uplink what may be opened to it, and both decide again
// when a policy changes. Answers pass.
func TestDirectPolicy(t *testing.T) {
	f := newRemoteFixture(t)
	restrict := func(egress, ingress uint32) { t.Helper(); f.restrict(t, egress, ingress) }
	f.eachKind(t, func(t *testing.T) {
		want := func(what string, got uint32, want uint32) { t.Helper(); wantVerdict(t, what, got, want) }
		restrict(denied, open)
		got, _ := f.out(t, syn)
		want("a request that egress policy denies", got, dropped)
		got, _ = f.in(t, f.eve, syn)
		want("a request that only egress policy would deny", got, deliver)
		got, _ = f.out(t, synACK)
		want("its answer", got, deliver)
		restrict(denied, denied)
		got, _ = f.in(t, f.eve, ack)
		want("after the right of the other side was revoked", got, dropped)
		got, _ = f.out(t, ack)
		want("an answer after that", got, dropped)

		f.forgetConnections(t)
		got, _ = f.in(t, f.eve, syn)
		want("a request that ingress policy denies", got, dropped)
		restrict(open, denied)
		got, _ = f.out(t, syn)
		want("a request that only ingress policy would deny", got, deliver)
		got, _ = f.in(t, f.eve, synACK)
		want("its answer", got, deliver)
		restrict(denied, denied)
		got, _ = f.out(t, ack)
		want("after the pod's own right was revoked", got, dropped)
		got, _ = f.in(t, f.eve, ack)
		want("an answer after that", got, dropped)
		drops := f.traffic(t, f.alice.id).Drops
		if drops[abi.DropPolicyEgress] != 3 || drops[abi.DropPolicyIngress] != 3 {
			t.Errorf("%d packets were dropped by egress and %d by ingress policy, want 3 and 3", drops[abi.DropPolicyEgress], drops[abi.DropPolicyIngress])
		}
		restrict(open, open)
	})
}

// TestDirectLostEntry: the entry of a connection is lost, as when it was idle for long, and the other side sends the
// next packet. It passes when either side may have opened the connection: alice, who may not be asked, has.
func TestDirectLostEntry(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		if f.udp { // of a datagram it is not known whether it is the first
			return
		}
		for _, may := range []struct{ egress, ingress, want uint32 }{{open, open, deliver}, {open, denied, deliver}, {denied, open, deliver}, {denied, denied, dropped}} {
			f.forgetConnections(t)
			f.restrict(t, may.egress, may.ingress)
			got, _ := f.in(t, f.eve, ack)
			wantVerdict(t, "into the pod", got, may.want)
			got, _ = f.out(t, ack)
			wantVerdict(t, "out of the pod", got, may.want)
			if may.want == deliver {
				f.wantPaths(t, abi.PathDirect)
			}
		}
		f.restrict(t, open, open)
		f.forgetConnections(t)
		a, c := f.ends()
		f.conversation().addToConntrack(t, a, c, a)
		got, _ := f.in(t, f.eve, ack)
		wantVerdict(t, "of a connection that conntrack knows", got, toNext)
		f.conversation().flushConntrack(t)
		got, _ = f.in(t, f.bob, ack)
		wantVerdict(t, "by another device than the route's", got, toNext)
	})
}

// TestDirectSeenByStack: packets of the other side take the stack, as by another device, so that conntrack takes it for
// the opener of the connection. Alice may not be asked, and has opened it: when a policy changes, her entry says so. A
// packet that opens another one is dropped.
func TestDirectSeenByStack(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		f.restrict(t, open, denied)
		_, _ = f.out(t, syn)
		_, _ = f.in(t, f.eve, synACK)
		a, c := f.ends()
		f.conversation().addToConntrack(t, c, a, c)
		f.restrict(t, open, denied) // another revision
		byStack := func(flags func(*layers.TCP)) uint32 {
			t.Helper()
			frame := f.conversation().frame(f.alice.hostMAC, f.alice.mac, c, a, flags)
			return f.runFrom(t, f.objects.ToPod, f.alice, skBuff{IngressIfindex: uint32(f.eve.index)}, frame)
		}
		if got := byStack(ack); got == dropped {
			t.Error("an answer was dropped")
		}
		if !f.udp {
			wantVerdict(t, "a SYN of the other side", byStack(syn), dropped)
		}
		f.restrict(t, denied, denied)
		wantVerdict(t, "after alice's right was revoked", byStack(ack), dropped)
		f.restrict(t, open, open)
	})
}

// TestDirectUnanswered: a SYN that is sent again goes through the stack, and so does all that follows. One that was
// answered does not.
func TestDirectUnanswered(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		if f.udp {
			return
		}
		got, _ := f.out(t, syn)
		wantVerdict(t, "the first", got, deliver)
		got, _ = f.out(t, syn)
		wantVerdict(t, "the second", got, toStack)
		f.wantPaths(t, abi.PathStack)
		got, _ = f.in(t, f.eve, synACK)
		wantVerdict(t, "the answer", got, toNext)
		got, _ = f.out(t, ack)
		wantVerdict(t, "what follows", got, toStack)

		f.forgetConnections(t)
		_, _ = f.out(t, syn)
		_, _ = f.in(t, f.eve, synACK)
		got, _ = f.out(t, syn)
		wantVerdict(t, "of one that was answered", got, deliver)
	})
}

// TestDirectICMPError: an error about a connection past the stack takes its path, whichever router it is from; any
// other is the stack's.
func TestDirectICMPError(t *testing.T) {
	f := newRemoteFixture(t)
	f.udp = true
	a, c := f.ends()
	request := f.conversation().frame(f.alice.mac, f.alice.hostMAC, a, c, nil)
	router := unreachable(f.eve.mac, f.eve.hostMAC, addr("192.0.2.7"), a.Addr(), request)
	got, _ := f.run(t, f.objects.FromUplink, f.eve, router)
	wantVerdict(t, "about nothing that is known", got, toNext)
	_, _ = f.out(t, datagram)
	got, _ = f.run(t, f.objects.FromUplink, f.eve, router)
	wantVerdict(t, "of a router", got, deliver)

	f.reset(t)
	_, _ = f.in(t, f.eve, datagram)
	answered := f.conversation().frame(f.eve.mac, f.eve.hostMAC, c, a, nil)
	got, _ = f.run(t, f.objects.FromPod, f.alice, unreachable(f.alice.mac, f.alice.hostMAC, a.Addr(), c.Addr(), answered))
	wantVerdict(t, "of the pod", got, deliver)
}

// TestDirectClosed: a packet that the stack has translated to the addresses and ports of an ended connection past the
// stack opens another connection, whose answers are the stack's.
func TestDirectClosed(t *testing.T) {
	f := newRemoteFixture(t)
	toUplink := asRequest(t, f.objects.ToUplink)
	f.eachKind(t, func(t *testing.T) {
		if f.udp {
			return
		}
		for name, end := range map[string]func(){
			"closed": func() { _, _ = f.out(t, fin); _, _ = f.in(t, f.eve, fin) },
			"reset":  func() { _, _ = f.out(t, rst) },
		} {
			f.reset(t)
			loadConntrack(t, f.netns)
			_, _ = f.out(t, syn)
			_, _ = f.in(t, f.eve, synACK)
			end()
			a, c := f.ends()
			service := netip.AddrPortFrom(f.bob.ip4, 443)
			if f.v6 {
				service = netip.AddrPortFrom(f.bob.ip6, 443)
			}
			f.conversation().addTranslation(t, service)
			frame := f.conversation().frame(f.eve.hostMAC, f.eve.mac, a, c, syn)
			got := f.runFrom(t, toUplink, f.eve, skBuff{Mark: uint32(f.alice.id), IngressIfindex: uint32(f.alice.index)}, frame)
			wantVerdict(t, name+": a SYN of the other connection", got, toNext)
			got, _ = f.in(t, f.eve, synACK)
			wantVerdict(t, name+": its answer", got, toNext)
		}
	})
}

// TestDirectReused: conntrack's entry of an ended connection, which has gone through the stack before, keeps no
// connection with the same ports from the direct path: the stack would take its SYN for invalid. A translation does.
func TestDirectReused(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		if f.udp {
			return
		}
		a, c := f.ends()
		f.conversation().addToConntrack(t, a, c, a)
		got, _ := f.out(t, syn)
		wantVerdict(t, "out", got, deliver)
		f.forgetConnections(t)
		got, _ = f.in(t, f.eve, syn)
		wantVerdict(t, "in", got, deliver)

		f.reset(t)
		loadConntrack(t, f.netns)
		service := netip.AddrPortFrom(f.bob.ip4, 443)
		if f.v6 {
			service = netip.AddrPortFrom(f.bob.ip6, 443)
		}
		f.conversation().addTranslation(t, service)
		got, _ = f.out(t, syn)
		wantVerdict(t, "out, with the ports of a translation", got, toStack)
	})
}

// TestDirectClash: a packet that the stack has translated to the addresses and ports of a connection past the stack is
// dropped at the uplink.
func TestDirectClash(t *testing.T) {
	f := newRemoteFixture(t)
	toUplink := asRequest(t, f.objects.ToUplink)
	f.eachKind(t, func(t *testing.T) {
		if f.udp { // has no SYN; test/e2e has the datagrams
			return
		}
		_, _ = f.out(t, syn)
		a, c := f.ends()
		frame := f.conversation().frame(f.eve.hostMAC, f.eve.mac, a, c, syn)
		uplink := func() uint32 {
			t.Helper()
			return f.runFrom(t, toUplink, f.eve, skBuff{Mark: uint32(f.alice.id), IngressIfindex: uint32(f.alice.index)}, frame)
		}
		wantVerdict(t, "of the connection itself", uplink(), toNext)
		service := netip.AddrPortFrom(f.bob.ip4, 443)
		if f.v6 {
			service = netip.AddrPortFrom(f.bob.ip6, 443)
		}
		f.conversation().addTranslation(t, service)
		wantVerdict(t, "of another one", uplink(), dropped)
		if n := f.traffic(t, f.alice.id).Drops[abi.DropPathClash]; n != 1 {
			t.Errorf("%d packets were dropped as %s, want 1", n, abi.DropPathClash)
		}
	})
}
