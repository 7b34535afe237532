package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// segment is a TCP segment without data, from the link's pod or down its link.
func segment(srcMAC, dstMAC []byte, src, dst netip.AddrPort, flags func(*layers.TCP)) []byte {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Window: 1000}
	flags(tcp)
	network, typ := network(src.Addr(), dst.Addr(), layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, tcp)
}

func network(src, dst netip.Addr, protocol layers.IPProtocol) (gopacket.SerializableLayer, layers.EthernetType) {
	if src.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}, layers.EthernetTypeIPv4
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}, layers.EthernetTypeIPv6
}

func syn(t *layers.TCP)      { t.SYN = true }
func synACK(t *layers.TCP)   { t.SYN, t.ACK = true, true }
func ack(t *layers.TCP)      { t.ACK = true }
func fin(t *layers.TCP)      { t.FIN, t.ACK = true, true }
func rst(t *layers.TCP)      { t.RST = true }
func datagram(t *layers.TCP) {} // stands for UDP

// A packet between alice's port 1000 and bob's port 80, or the port that other says.
type packet struct {
	from  string // "alice", "bob": out of the pod; "alice by stack", "bob by stack": what the node sends down the other one's link
	flags func(*layers.TCP)
	want  uint32
}

// life is a connection between alice and bob.
type life struct {
	*fixture
	alice, bob netip.AddrPort
	udp        bool
}

func newLife(f *fixture, v6, udp bool) life {
	l := life{f, netip.AddrPortFrom(f.alice.ip4, 1000), netip.AddrPortFrom(f.bob.ip4, 80), udp}
	if v6 {
		l.alice, l.bob = netip.AddrPortFrom(f.alice.ip6, 1000), netip.AddrPortFrom(f.bob.ip6, 80)
	}
	return l
}

func (l life) frame(srcMAC, dstMAC []byte, src, dst netip.AddrPort, flags func(*layers.TCP)) []byte {
	if !l.udp {
		return segment(srcMAC, dstMAC, src, dst, flags)
	}
	u := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	network, typ := network(src.Addr(), dst.Addr(), layers.IPProtocolUDP)
	_ = u.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, u)
}

// send runs the program that sees the packet.
func (l life) send(t *testing.T, p packet) uint32 {
	t.Helper()
	a, b := l.fixture.alice, l.fixture.bob
	var prog *ebpf.Program
	var link party
	var in []byte
	switch p.from {
	case "alice":
		prog, link, in = l.objects.FromPod, a, l.frame(a.mac, a.hostMAC, l.alice, l.bob, p.flags)
	case "bob":
		prog, link, in = l.objects.FromPod, b, l.frame(b.mac, b.hostMAC, l.bob, l.alice, p.flags)
	case "alice by stack":
		prog, link, in = l.objects.ToPod, b, l.frame(b.hostMAC, b.mac, l.alice, l.bob, p.flags)
	case "bob by stack":
		prog, link, in = l.objects.ToPod, a, l.frame(a.hostMAC, a.mac, l.bob, l.alice, p.flags)
	default:
		t.Fatalf("packet from %q", p.from)
	}
	verdict, _ := l.run(t, prog, link, in)
	return verdict
}

func (l life) keys() (atAlice, atBob abi.ConnectionKey) {
	protocol := uint8(unix.IPPROTO_TCP)
	if l.udp {
		protocol = unix.IPPROTO_UDP
	}
	family := uint8(4)
	if l.alice.Addr().Is6() {
		family = 6
	}
	key := func(p party, own, remote netip.AddrPort) abi.ConnectionKey {
		return abi.ConnectionKey{
			Remote: abi.AddrOf(remote.Addr()), Ifindex: uint32(p.index), Protocol: protocol, Family: family,
			LocalPort: own.Port()<<8 | own.Port()>>8, RemotePort: remote.Port()<<8 | remote.Port()>>8,
		}
	}
	return key(l.fixture.alice, l.alice, l.bob), key(l.fixture.bob, l.bob, l.alice)
}

// forget removes an entry, and counts that.
func (l life) forget(t *testing.T, key abi.ConnectionKey) {
	t.Helper()
	charged := uint32(l.connections(t)[key].Charged)
	if err := l.objects.Connections.Delete(key); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{abi.NoEndpoint, charged} {
		var usage abi.Usage
		if err := l.objects.Usage.Lookup(id, &usage); err != nil {
			t.Fatal(err)
		}
		usage.Removed++
		if err := l.objects.Usage.Put(id, usage); err != nil {
			t.Fatal(err)
		}
	}
}

// known writes the connection into the conntrack of the node, as the stack does that has translated alice's address on the way.
func (l life) known(t *testing.T, from, to netip.AddrPort, replyTo netip.AddrPort) {
	t.Helper()
	protocol := uint8(unix.IPPROTO_TCP)
	if l.udp {
		protocol = unix.IPPROTO_UDP
	}
	tuple := func(src, dst netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(), SrcPort: src.Port(), DstPort: dst.Port(), Protocol: protocol}
	}
	flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, Forward: tuple(from, to), Reverse: tuple(to, replyTo), TimeOut: 100}
	if from.Addr().Is6() {
		flow.FamilyType = unix.AF_INET6
	}
	if !l.udp {
		state := uint8(3) // established
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: state}
	}
	err := l.netns.Do(func() error {
		return netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(flow.FamilyType), flow)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (l life) flushConntrack(t *testing.T) {
	t.Helper()
	loadConntrack(t, l.netns)
}

// TestConnectionPath: the first packet decides, and all others follow, whatever is lost.
func TestConnectionPath(t *testing.T) {
	f := load(t)
	rows := []struct {
		name    string
		tcp     bool // else UDP
		before  func(t *testing.T, l life)
		packets []packet
		between func(t *testing.T, l life) // before the last packet
	}{
		{"a SYN to a pod takes the shortcut, and so do replies", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice", ack, deliver}, {"alice", fin, deliver}, {"bob", fin, deliver}, {"alice", ack, deliver},
		}, nil},
		{"a datagram to a pod takes the shortcut, and so do replies", false, nil, []packet{
			{"alice", datagram, deliver}, {"bob", datagram, deliver}, {"alice", datagram, deliver},
		}, nil},
		{"replies to what came through the stack go through the stack", true, nil, []packet{
			{"alice by stack", syn, toStack}, {"bob", synACK, toStack}, {"alice by stack", ack, toStack}, {"bob", fin, toStack},
		}, nil},
		{"replies to a datagram that came through the stack go through the stack", false, nil, []packet{
			{"alice by stack", datagram, toStack}, {"bob", datagram, toStack},
		}, nil},
		{"a reply of which only the node's conntrack knows goes through the stack", true, func(t *testing.T, l life) {
			l.known(t, l.alice, l.bob, l.alice)
		}, []packet{{"bob", ack, toStack}, {"bob by stack", ack, toStack}}, nil},
		{"so does a packet of a connection whose replies are translated", true, func(t *testing.T, l life) {
			translated := l.fixture.eve.ip4
			if l.alice.Addr().Is6() {
				translated = l.fixture.eve.ip6
			}
			l.known(t, l.alice, l.bob, netip.AddrPortFrom(translated, 1234))
		}, []packet{{"alice", ack, toStack}}, nil},
		{"a datagram of which the node's conntrack knows goes through the stack", false, func(t *testing.T, l life) {
			l.known(t, l.alice, l.bob, l.alice)
		}, []packet{{"bob", datagram, toStack}}, nil},
		{"a segment of which nobody knows had taken the shortcut", true, nil, []packet{{"alice", ack, deliver}, {"bob", ack, deliver}}, nil},
		{"one end's entry is lost: the other knows the shortcut", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice", ack, deliver},
		}, func(t *testing.T, l life) {
			here, _ := l.keys()
			l.forget(t, here)
			l.known(t, l.alice, l.bob, l.alice) // and is asked first
		}},
		{"one end's entry is lost: the other knows the stack", true, nil, []packet{
			{"alice by stack", syn, toStack}, {"alice", ack, toStack},
		}, nil},
		{"a SYN from the stack clashes with a connection by the shortcut", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice by stack", syn, dropped},
		}, nil},
		{"a SYN from the stack does not clash with one that has closed", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice", fin, deliver}, {"bob", fin, deliver},
			{"alice by stack", syn, toStack}, {"bob", synACK, toStack},
		}, nil},
		{"a SYN after a reset decides anew", true, nil, []packet{
			{"alice by stack", syn, toStack}, {"bob", rst, toStack}, {"alice", syn, deliver}, {"bob", synACK, deliver},
		}, nil},
		{"a segment without SYN from the stack does not clash: it may have had IP options", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice by stack", ack, toStack}, {"bob", ack, deliver},
		}, nil},
		{"a datagram from the stack that was not translated is of the connection itself", false, func(t *testing.T, l life) {
			l.send(t, packet{"alice", datagram, deliver})
			l.known(t, l.alice, l.bob, l.alice) // a fragment has been there
		}, []packet{
			{"alice by stack", datagram, toStack}, {"bob", datagram, deliver}, {"alice by stack", datagram, toStack}, {"alice", datagram, deliver},
		}, nil},
		{"without room it is the stack", true, func(t *testing.T, l life) { l.limit(t, abi.Limits{}) }, []packet{
			{"alice", syn, toStack}, {"alice by stack", syn, toStack},
		}, nil},
		{"without room for both ends it is the stack", true, func(t *testing.T, l life) { l.limit(t, abi.Limits{Share: 1}) }, []packet{
			{"alice", syn, toStack}, {"alice by stack", syn, toStack}, {"bob", synACK, toStack},
		}, nil},
		{"an endpoint has its share when there is no other room", true, func(t *testing.T, l life) { l.limit(t, abi.Limits{Share: 2}) }, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver},
		}, nil},
		{"the pod at the other end is another one: its predecessor's entries count for nothing", true, nil, []packet{
			{"alice by stack", syn, toStack}, {"bob", synACK, deliver},
		}, func(t *testing.T, l life) { l.raise(t, l.fixture.bob) }},
	}
	for _, row := range rows {
		for _, family := range []string{"IPv4", "IPv6"} {
			l := newLife(f, family == "IPv6", !row.tcp)
			t.Run(row.name+", "+family, func(t *testing.T) {
				f.reset(t)
				f.limit(t, abi.Limits{Common: 16})
				l.flushConntrack(t)
				if row.before != nil {
					row.before(t, l)
				}
				for i, p := range row.packets {
					if i == len(row.packets)-1 && row.between != nil {
						row.between(t, l)
					}
					if got := l.send(t, p); got != p.want {
						t.Errorf("packet %d, from %s: verdict %d, want %d; connections %+v", i, p.from, got, p.want, f.connections(t))
					}
				}
				f.checkUsage(t)
			})
		}
	}
}

func (f *fixture) limit(t testing.TB, limits abi.Limits) {
	t.Helper()
	if err := f.objects.Limits.Put(uint32(0), limits); err != nil {
		t.Fatal(err)
	}
}

// raise is the end of a pod, and another one under its number.
func (f *fixture) raise(t testing.TB, p party) {
	t.Helper()
	var slot abi.Slot
	if err := f.objects.Slots.Lookup(uint32(p.id), &slot); err != nil {
		t.Fatal(err)
	}
	slot.Generation++
	if err := f.objects.Slots.Put(uint32(p.id), slot); err != nil {
		t.Fatal(err)
	}
}

// checkUsage compares what is counted with the entries.
func (f *fixture) checkUsage(t testing.TB) {
	t.Helper()
	want := map[uint32]uint32{}
	for _, c := range f.connections(t) {
		want[uint32(c.Charged)]++
		want[abi.NoEndpoint]++
	}
	got := map[uint32]uint32{}
	for _, id := range []uint32{abi.NoEndpoint, uint32(f.alice.id), uint32(f.bob.id)} {
		var usage abi.Usage
		if err := f.objects.Usage.Lookup(id, &usage); err != nil {
			t.Fatal(err)
		}
		if usage.Connections() != 0 {
			got[id] = usage.Connections()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted entries (-want +got):\n%s", diff)
	}
}
