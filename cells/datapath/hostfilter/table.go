package hostfilter

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/nft"
)

// The sets of interfaces, and the maps from a key that begins with an interface to a verdict.
var (
	ports = &nft.Set{
		Name: "ports", Value: nftables.TypeVerdict, Ranges: true,
		Key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeInetProto, nftables.TypeInetService),
	}
	icmp4Types = &nft.Set{Name: "icmp4_types", Value: nftables.TypeVerdict, Key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeICMPType)}
	icmp6Types = &nft.Set{Name: "icmp6_types", Value: nftables.TypeVerdict, Key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeICMP6Type)}
	protocols  = &nft.Set{Name: "protocols", Value: nftables.TypeVerdict, Key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeInetProto)}
	others     = &nft.Set{Name: "others", Value: nftables.TypeVerdict, Key: nftables.TypeIFIndex}
	restricted = &nft.Set{Name: "restricted", Key: nftables.TypeIFIndex} // pods' host ends
	enforced   = &nft.Set{Name: "enforced", Key: nftables.TypeIFIndex}   // devices where a program enforces egress policies
)

// The names of chains.
const (
	input   = "input"
	forward = "forward"
	denied  = "denied"
)

// The chains run before the filters of others, and input after all translation of destinations.
const beforeFilters = -1

// TableName is the name of the table.
const TableName = "porin"

// table has denied first, as elements of the maps go to it.
var table = &nft.Table{
	Name:        TableName,
	Sets:        []*nft.Set{ports, icmp4Types, icmp6Types, protocols, others, restricted, enforced},
	Unsupported: ErrUnsupported,
	Chains: []nft.Chain{
		{Name: denied, Rules: []nft.Rule{nft.On("denied by an egress policy").Count().Verdict(expr.VerdictDrop)}},
		{
			Name: input, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookInput, Order: beforeFilters,
			Rules: []nft.Rule{
				nft.On("not from a restricted pod").Meta(expr.MetaKeyIIF, 0).Lookup(restricted, nft.NotIn).Verdict(expr.VerdictAccept),
				diverted(nft.On("to the proxy, which applies the policies")).Verdict(expr.VerdictAccept),
				reply(nft.On("replies")).Verdict(expr.VerdictAccept),
				related(nft.On("ICMP errors about connections").Protocol(unix.IPPROTO_ICMP)).Verdict(expr.VerdictAccept),
				related(nft.On("ICMPv6 errors about connections").Protocol(unix.IPPROTO_ICMPV6)).Verdict(expr.VerdictAccept),
				neighbourDiscovery(nft.On("neighbour discovery").Protocol(unix.IPPROTO_ICMPV6)).Verdict(expr.VerdictAccept),
				nft.On("interface, protocol, ports").Meta(expr.MetaKeyIIF, 0).Meta(expr.MetaKeyL4PROTO, 1).Transport(2, 2, 2).Lookup(ports, nft.In),
				nft.On("interface, type of ICMP").Protocol(unix.IPPROTO_ICMP).Meta(expr.MetaKeyIIF, 0).Transport(0, 1, 1).Lookup(icmp4Types, nft.In),
				nft.On("interface, type of ICMPv6").Protocol(unix.IPPROTO_ICMPV6).Meta(expr.MetaKeyIIF, 0).Transport(0, 1, 1).Lookup(icmp6Types, nft.In),
				nft.On("interface, protocol").Meta(expr.MetaKeyIIF, 0).Meta(expr.MetaKeyL4PROTO, 1).Lookup(protocols, nft.In),
				nft.On("interface").Meta(expr.MetaKeyIIF, 0).Lookup(others, nft.In),
			},
		},
		{
			Name: forward, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookForward, Order: beforeFilters,
			Rules: []nft.Rule{
				nft.On("not from a restricted pod").Meta(expr.MetaKeyIIF, 0).Lookup(restricted, nft.NotIn).Verdict(expr.VerdictAccept),
				nft.On("to a device where a program enforces egress policies").Meta(expr.MetaKeyOIF, 0).Lookup(enforced, nft.In).Verdict(expr.VerdictAccept),
				reply(nft.On("replies")).Verdict(expr.VerdictAccept),
				related(nft.On("ICMP errors about connections").Protocol(unix.IPPROTO_ICMP)).Verdict(expr.VerdictAccept),
				related(nft.On("ICMPv6 errors about connections").Protocol(unix.IPPROTO_ICMPV6)).Verdict(expr.VerdictAccept),
				nft.On("to a device where no program does").Count().Verdict(expr.VerdictDrop),
			},
		},
	},
}

// diverted matches packets to a socket of the proxy's: of a connection that it has accepted, and what select_listener
// gives it of what pods send to the node.
func diverted(r nft.Rule) nft.Rule {
	bits := binaryutil.NativeEndian
	return r.Meta(expr.MetaKeyMARK, 0).With(&expr.Bitwise{
		SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 4, Mask: bits.PutUint32(abi.ProxyMarkMask), Xor: bits.PutUint32(0),
	}).Equal(0, bits.PutUint32(abi.ProxyDivertMark)...)
}

// reply matches what answers the one who opened the connection.
func reply(r nft.Rule) nft.Rule {
	const reply = 1 // IP_CT_DIR_REPLY
	return r.With(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nft.Register(0)}).Equal(0, reply)
}

// related is for ICMP: a related packet of another protocol may open a new connection.
func related(r nft.Rule) nft.Rule {
	return r.With(&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Register(0)}).HasBits(0, expr.CtStateBitRELATED)
}

// neighbourDiscovery matches solicitations and advertisements. Pods need none, as the neighbour entries on both sides
// are permanent, and from_pod drops what is link-local. The rule lets a pod whose entries were changed reach its
// gateway.
func neighbourDiscovery(r nft.Rule) nft.Rule {
	const solicitation, advertisement = 135, 136
	return r.Transport(0, 1, 0).With(&expr.Range{Op: expr.CmpOpEq, Register: nft.Register(0), FromData: []byte{solicitation}, ToData: []byte{advertisement}})
}
