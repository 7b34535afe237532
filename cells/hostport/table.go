package hostport

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// ErrUnsupported is returned when the kernel lacks what host ports need.
var ErrUnsupported = fault.New(fault.Unavailable,
	"kernel lacks what host ports need: nf_tables with inet tables and translation (Linux 5.2, CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_FIB_INET)")

var (
	protocolNumbers = map[string]uint8{v1.ProtocolTCP: unix.IPPROTO_TCP, v1.ProtocolUDP: unix.IPPROTO_UDP, v1.ProtocolSCTP: unix.IPPROTO_SCTP}
	protocolNames   = map[uint8]string{unix.IPPROTO_TCP: v1.ProtocolTCP, unix.IPPROTO_UDP: v1.ProtocolUDP, unix.IPPROTO_SCTP: v1.ProtocolSCTP}
)

// family has the sets of one family.
type family struct {
	nft       nft.Family
	all       *nft.Set // protocol and port -> where it leads to
	addressed *nft.Set // address of the node, protocol and port -> where it leads to
	pods      *nft.Set // that ports lead to
	itself    *nft.Set // each of these twice: packets to itself
}

var (
	ipv4 = newFamily(nft.IPv4)
	ipv6 = newFamily(nft.IPv6)
)

func newFamily(f nft.Family) family {
	target := nftables.MustConcatSetType(f.Address, nftables.TypeInetService)
	return family{
		nft:       f,
		all:       &nft.Set{Name: "all-" + f.Name, Value: target, Key: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)},
		addressed: &nft.Set{Name: "addressed-" + f.Name, Value: target, Key: nftables.MustConcatSetType(f.Address, nftables.TypeInetProto, nftables.TypeInetService)},
		pods:      f.Addresses("pods", false),
		itself:    &nft.Set{Name: "itself-" + f.Name, Key: nftables.MustConcatSetType(f.Address, f.Address)},
	}
}

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// Priorities: kube-proxy and most others have -100 (dstnat) and 100 (srcnat). The first chain that translates a
// connection is the last one that sees it.
const (
	afterOthersIn  = -99
	afterOthersOut = 105
)

const ports = "ports"

// TableName is the name of the table.
const TableName = "porin-hostport"

var table = &nft.Table{
	Name:        TableName,
	Unsupported: ErrUnsupported,
	Sets: []*nft.Set{
		ipv4.all, ipv4.addressed, ipv4.pods, ipv4.itself,
		ipv6.all, ipv6.addressed, ipv6.pods, ipv6.itself,
	},
	Chains: []nft.Chain{
		{Name: ports, Rules: []nft.Rule{
			ipv4.translate(nft.On("address of the node and port").Of(nft.IPv4).Destination(nft.IPv4, 0).Meta(expr.MetaKeyL4PROTO, 1).Transport(2, 2, 2), ipv4.addressed),
			ipv4.translate(nft.On("port").Of(nft.IPv4).Meta(expr.MetaKeyL4PROTO, 0).Transport(2, 2, 1), ipv4.all),
			nft.On("::1 cannot be the source of what leaves the node").Of(nft.IPv6).Destination(nft.IPv6, 0).Equal(0, netip.IPv6Loopback().AsSlice()...).Verdict(expr.VerdictAccept),
			ipv6.translate(nft.On("address of the node and port").Of(nft.IPv6).Destination(nft.IPv6, 0).Meta(expr.MetaKeyL4PROTO, 4).Transport(2, 2, 5), ipv6.addressed),
			ipv6.translate(nft.On("port").Of(nft.IPv6).Meta(expr.MetaKeyL4PROTO, 0).Transport(2, 2, 1), ipv6.all),
		}},
		{
			Name: "prerouting", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPrerouting, Order: afterOthersIn,
			Rules: []nft.Rule{toNode("from others to the node")},
		},
		{
			Name: "output", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookOutput, Order: afterOthersIn,
			Rules: []nft.Rule{toNode("from the node to itself")},
		},
		{
			Name: "postrouting", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting, Order: afterOthersOut,
			Rules: []nft.Rule{
				masquerade(nft.On("from 127.0.0.0/8").Of(nft.IPv4).Network(12, 1, 0).Equal(0, 127).Destination(nft.IPv4, 0).Lookup(ipv4.pods, nft.In)),
				masquerade(nft.On("from a pod to itself").Of(nft.IPv4).Source(nft.IPv4, 0).Destination(nft.IPv4, 1).Lookup(ipv4.itself, nft.In)),
				masquerade(nft.On("from a pod to itself").Of(nft.IPv6).Source(nft.IPv6, 0).Destination(nft.IPv6, 4).Lookup(ipv6.itself, nft.In)),
			},
		},
	},
}

// toNode matches packets to the node's own addresses.
func toNode(comment string) nft.Rule {
	return nft.On(comment).With(&expr.Fib{Register: nft.Register(0), FlagDADDR: true, ResultADDRTYPE: true}).
		Equal(0, binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)...).
		With(&expr.Verdict{Kind: expr.VerdictJump, Chain: ports})
}

// translate gives the packet the destination that the map has for what is loaded.
func (f family) translate(r nft.Rule, s *nft.Set) nft.Rule {
	return r.Load(s).With(&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f.nft.Number), RegAddrMin: nft.Register(0), RegProtoMin: nft.Register(f.nft.Words()), Specified: true,
	})
}

// masquerade chooses the source port at random: see package masquerade.
func masquerade(r nft.Rule) nft.Rule { return r.With(&expr.Masq{FullyRandom: true}) }

// addElements adds what a port takes.
func addElements(s nft.State, p port, to netip.AddrPort) {
	f, pod := familyOf(p.host), string(to.Addr().AsSlice())
	set, key := f.all, word(p.protocol)+number(p.number)
	if !p.host.IsUnspecified() {
		set, key = f.addressed, string(p.host.AsSlice())+key
	}
	s.Add(set, nft.Element{Key: key, Value: pod + number(to.Port())})
	s.Add(f.pods, nft.Element{Key: pod})
	s.Add(f.itself, nft.Element{Key: pod + pod})
}

// Parts of keys and values, each padded to 32 bits.
func word(protocol uint8) string { return string([]byte{protocol, 0, 0, 0}) }
func number(port uint16) string  { return string(binary.BigEndian.AppendUint16(nil, port)) + "\x00\x00" }

// portsOf reads the maps of a state.
func portsOf(s nft.State) map[port]netip.AddrPort {
	found := map[port]netip.AddrPort{}
	for _, f := range []family{ipv4, ipv6} {
		size := 4 * int(f.nft.Words())
		unspecified, _ := netip.AddrFromSlice(make([]byte, size))
		add := func(host netip.Addr, key, value string) {
			if to, ok := netip.AddrFromSlice([]byte(value[:min(size, len(value))])); ok && len(key) == 8 && len(value) == size+4 {
				found[port{host, portOf(key[4:]), key[0]}] = netip.AddrPortFrom(to, portOf(value[size:]))
			}
		}
		for key, e := range s[f.all] {
			add(unspecified, key, e.Value)
		}
		for key, e := range s[f.addressed] {
			host, _ := netip.AddrFromSlice([]byte(key[:size]))
			add(host, key[size:], e.Value)
		}
	}
	return found
}

func portOf(text string) uint16 { return binary.BigEndian.Uint16([]byte(text)) }
