package bpf_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// packet is a packet between alice's port 1000 and bob's port 80.
type packet struct {
	from  string // "alice", "bob": out of the pod; "alice by stack", "bob by stack": as it arrives at the other pod through the stack
	flags func(*layers.TCP)
	want  uint32
}

// conversation is a connection between alice and bob.
type conversation struct {
	*fixture
	alice, bob netip.AddrPort
	udp        bool
}

func newConversation(f *fixture, v6, udp bool) conversation {
	l := conversation{f, netip.AddrPortFrom(f.alice.ip4, 1000), netip.AddrPortFrom(f.bob.ip4, 80), udp}
	if v6 {
		l.alice, l.bob = netip.AddrPortFrom(f.alice.ip6, 1000), netip.AddrPortFrom(f.bob.ip6, 80)
	}
	return l
}

func (l conversation) frame(srcMAC, dstMAC []byte, src, dst netip.AddrPort, flags func(*layers.TCP)) []byte {
	if !l.udp {
		return segment(srcMAC, dstMAC, src, dst, flags)
	}
	return udpSegment(srcMAC, dstMAC, src, dst)
}

// send runs the program that sees the packet.
func (l conversation) send(t *testing.T, p packet) uint32 {
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

func (l conversation) keys() (atAlice, atBob abi.ConnectionKey) {
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

// loseEntry removes an entry, and counts that.
func (l conversation) loseEntry(t *testing.T, key abi.ConnectionKey) {
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

// addToConntrack writes the connection into the node's conntrack, as the stack does. Replies go to replyTo: another
// address than from if the stack has translated it.
func (l conversation) addToConntrack(t *testing.T, from, to netip.AddrPort, replyTo netip.AddrPort) {
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

// Of linux/netfilter/nfnetlink_conntrack.h.
const (
	natDst       = 13 // CTA_NAT_DST
	natMinIPv4   = 1  // CTA_NAT_V4_MINIP
	natProto     = 3  // CTA_NAT_PROTO
	natMinIPv6   = 4  // CTA_NAT_V6_MINIP
	protoNatPort = 1  // CTA_PROTONAT_PORT_MIN
)

// addTranslation adds a connection from alice to a Service's address that the node has translated to bob's.
func (l conversation) addTranslation(t *testing.T, service netip.AddrPort) {
	t.Helper()
	family, minIP := uint8(unix.AF_INET), natMinIPv4
	if service.Addr().Is6() {
		family, minIP = unix.AF_INET6, natMinIPv6
	}
	bigEndian := func(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
	tuple := func(kind int, src, dst netip.AddrPort) *nl.RtAttr {
		attr := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
		ip := attr.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
		source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
		if family == unix.AF_INET6 {
			source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
		}
		ip.AddRtAttr(source, src.Addr().AsSlice())
		ip.AddRtAttr(destination, dst.Addr().AsSlice())
		proto := attr.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
		proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_TCP})
		proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, bigEndian(src.Port()))
		proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, bigEndian(dst.Port()))
		return attr
	}
	destination := nl.NewRtAttr(unix.NLA_F_NESTED|natDst, nil)
	destination.AddRtAttr(minIP, l.bob.Addr().AsSlice())
	ports := destination.AddRtAttr(unix.NLA_F_NESTED|natProto, nil)
	ports.AddRtAttr(protoNatPort, bigEndian(l.bob.Port()))
	request := nl.NewNetlinkRequest(int(netlink.ConntrackTable)<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	request.AddData(tuple(nl.CTA_TUPLE_ORIG, l.alice, service))
	request.AddData(tuple(nl.CTA_TUPLE_REPLY, service, l.alice))
	request.AddData(destination)
	request.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, binary.BigEndian.AppendUint32(nil, 100)))
	err := l.netns.Do(func() error {
		_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tracked lists what conntrack has: sources and destinations of both directions.
func (l conversation) tracked(t *testing.T) (out []string) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if l.alice.Addr().Is6() {
		family = unix.AF_INET6
	}
	err := l.netns.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, f := range flows {
			out = append(out, fmt.Sprint(f.Forward.SrcIP, f.Forward.SrcPort, f.Forward.DstIP, f.Forward.DstPort, f.Reverse.SrcIP, f.Reverse.SrcPort, f.Reverse.DstIP, f.Reverse.DstPort))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (l conversation) flushConntrack(t *testing.T) {
	t.Helper()
	loadConntrack(t, l.netns)
}

// TestConnectionPath: the first packet decides, and all others follow, whatever is lost.
func TestConnectionPath(t *testing.T) {
	f := load(t)
	rows := []struct {
		name    string
		tcp     bool // else UDP
		before  func(t *testing.T, l conversation)
		packets []packet
		between func(t *testing.T, l conversation) // before the last packet
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
		{"a reply of which only the node's conntrack knows goes through the stack", true, func(t *testing.T, l conversation) {
			l.addToConntrack(t, l.alice, l.bob, l.alice)
		}, []packet{{"bob", ack, toStack}, {"bob by stack", ack, toStack}}, nil},
		{"so does a packet of a connection whose replies are translated", true, func(t *testing.T, l conversation) {
			translated := l.fixture.eve.ip4
			if l.alice.Addr().Is6() {
				translated = l.fixture.eve.ip6
			}
			l.addToConntrack(t, l.alice, l.bob, netip.AddrPortFrom(translated, 1234))
		}, []packet{{"alice", ack, toStack}}, nil},
		{"a datagram of which the node's conntrack knows goes through the stack", false, func(t *testing.T, l conversation) {
			l.addToConntrack(t, l.alice, l.bob, l.alice)
		}, []packet{{"bob", datagram, toStack}}, nil},
		{"a segment of which nobody knows had taken the shortcut", true, nil, []packet{{"alice", ack, deliver}, {"bob", ack, deliver}}, nil},
		{"one end's entry is lost: the other knows the shortcut", true, nil, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver}, {"alice", ack, deliver},
		}, func(t *testing.T, l conversation) {
			here, _ := l.keys()
			l.loseEntry(t, here)
			l.addToConntrack(t, l.alice, l.bob, l.alice) // and is asked first
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
		{"a datagram from the stack that was not translated is of the connection itself", false, func(t *testing.T, l conversation) {
			l.send(t, packet{"alice", datagram, deliver})
			l.addToConntrack(t, l.alice, l.bob, l.alice) // a fragment has been there
		}, []packet{
			{"alice by stack", datagram, toStack}, {"bob", datagram, deliver}, {"alice by stack", datagram, toStack}, {"alice", datagram, deliver},
		}, nil},
		{"without room it is the stack", true, func(t *testing.T, l conversation) { l.limit(t, abi.Limits{}) }, []packet{
			{"alice", syn, toStack}, {"alice by stack", syn, toStack},
		}, nil},
		{"without room for both ends it is the stack", true, func(t *testing.T, l conversation) { l.limit(t, abi.Limits{Share: 1}) }, []packet{
			{"alice", syn, toStack}, {"alice by stack", syn, toStack}, {"bob", synACK, toStack},
		}, nil},
		{"an endpoint has its share when there is no other room", true, func(t *testing.T, l conversation) { l.limit(t, abi.Limits{Share: 2}) }, []packet{
			{"alice", syn, deliver}, {"bob", synACK, deliver},
		}, nil},
		{"the pod at the other end is another one: its predecessor's entries count for nothing", true, nil, []packet{
			{"alice by stack", syn, toStack}, {"bob", synACK, deliver},
		}, func(t *testing.T, l conversation) { l.replacePod(t, l.fixture.bob) }},
	}
	for _, row := range rows {
		for _, family := range []string{"IPv4", "IPv6"} {
			l := newConversation(f, family == "IPv6", !row.tcp)
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

// TestPathWithoutRoom: the other end's entry says the path also when there is no room for one here.
func TestPathWithoutRoom(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newConversation(f, false, false)
	l.flushConntrack(t)
	l.send(t, packet{"alice", syn, deliver})
	_, there := l.keys()
	l.loseEntry(t, there)
	f.limit(t, abi.Limits{})
	for _, p := range []packet{{"bob", synACK, deliver}, {"alice", ack, deliver}} {
		if verdict := l.send(t, p); verdict != p.want {
			t.Errorf("from %s: verdict %d, want %d", p.from, verdict, p.want)
		}
	}
}

// TestShares: two pods that use up what is common leave a third one its share, and what is refused is counted.
func TestShares(t *testing.T) {
	f := load(t)
	f.reset(t)
	const size = 16
	f.limit(t, abi.Limits{Common: size / 4 * 3, Share: size / 4 / 2})
	for port := uint16(1); port < 100; port++ {
		in := segment(f.bob.hostMAC, f.bob.mac, netip.AddrPortFrom(outside.ip4, port), netip.AddrPortFrom(f.bob.ip4, 80), syn)
		f.run(t, f.objects.ToPod, f.bob, in)
	}
	l := newConversation(f, false, false)
	if verdict := l.send(t, packet{"alice", syn, deliver}); verdict != deliver {
		t.Errorf("verdict %d, want %d: alice has a share", verdict, deliver)
	}
	var usage abi.Usage
	if err := f.objects.Usage.Lookup(uint32(f.bob.id), &usage); err != nil || usage.Connections() != 12 || usage.Refused != 99-12 {
		t.Errorf("bob uses %+v, error %v, want 12 entries and all others refused", usage, err)
	}
	f.checkUsage(t)
}

func (f *fixture) limit(t testing.TB, limits abi.Limits) {
	t.Helper()
	if err := f.objects.Limits.Put(uint32(0), limits); err != nil {
		t.Fatal(err)
	}
}

// replacePod ends a pod, and gives its ID to another one.
func (f *fixture) replacePod(t testing.TB, p party) {
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

// TestClashInConntrack: after a SYN that was translated to the addresses and ports of a connection by the shortcut,
// conntrack has that connection instead, so that the kernel gives the next SYN another port. It learns nothing of an
// untranslated one.
func TestClashInConntrack(t *testing.T) {
	f := load(t)
	for _, service := range []netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:8080"), netip.MustParseAddrPort("[fd00:96::1]:8080")} {
		l := newConversation(f, service.Addr().Is6(), false)
		direct := fmt.Sprint(l.alice.Addr(), l.alice.Port(), l.bob.Addr(), l.bob.Port(), l.bob.Addr(), l.bob.Port(), l.alice.Addr(), l.alice.Port())
		for name, row := range map[string]struct {
			before func()
			want   []string
		}{
			"translated":     {func() { l.addTranslation(t, service) }, []string{direct}},
			"not translated": {func() { l.addToConntrack(t, l.alice, l.bob, l.alice) }, []string{direct}},
			"unknown":        {func() {}, nil},
		} {
			t.Run(fmt.Sprint(name, ", ", service.Addr()), func(t *testing.T) {
				f.reset(t)
				l.flushConntrack(t)
				l.send(t, packet{"alice", syn, deliver})
				l.send(t, packet{"bob", synACK, deliver})
				row.before()
				if verdict := l.send(t, packet{"alice by stack", syn, dropped}); verdict != dropped {
					t.Errorf("verdict %d, want %d", verdict, dropped)
				}
				if diff := cmp.Diff(row.want, l.tracked(t)); diff != "" {
					t.Error(diff)
				}
				if verdict := l.send(t, packet{"bob", ack, deliver}); verdict != deliver {
					t.Errorf("the connection by the shortcut: verdict %d, want %d", verdict, deliver)
				}
			})
		}
	}
}

// TestPathLimited: no packet from or to a pod whose bandwidth is limited takes the shortcut, whoever has opened the
// connection.
func TestPathLimited(t *testing.T) {
	f := load(t)
	for _, limited := range []party{f.alice, f.bob} {
		for _, six := range []bool{false, true} {
			l := newConversation(f, six, false)
			f.reset(t)
			l.flushConntrack(t)
			f.register(t, f.alice)
			f.register(t, f.bob)
			for _, ip := range []netip.Addr{limited.ip4, limited.ip6} {
				var entry abi.Endpoint
				if err := f.objects.Endpoints.Lookup(abi.AddrOf(ip), &entry); err != nil {
					t.Fatal(err)
				}
				entry.Flags = abi.EndpointLimited
				if err := f.objects.Endpoints.Put(abi.AddrOf(ip), entry); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range []packet{
				{"alice", syn, toStack}, {"alice by stack", syn, toStack}, {"bob", synACK, toStack}, {"bob by stack", synACK, toStack},
				{"alice", ack, toStack}, {"alice by stack", ack, toStack}, {"alice", fin, toStack}, {"bob", fin, toStack},
			} {
				if got := l.send(t, p); got != p.want {
					t.Errorf("endpoint %d is limited, IPv6 %v, from %s: verdict %d, want %d", limited.id, six, p.from, got, p.want)
				}
			}
			f.reset(t)
			if got := l.send(t, packet{"bob", ack, toStack}); got != toStack {
				t.Errorf("endpoint %d is limited, IPv6 %v: a segment of which nobody knows: verdict %d", limited.id, six, got)
			}
		}
	}
}
