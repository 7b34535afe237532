package hostfilter

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/nft"
)

// verdicts is a map to a verdict from the number of a set of rows, and what follows.
func verdicts(name string, ranges bool, key ...nftables.SetDatatype) *nft.Set {
	key = append([]nftables.SetDatatype{nftables.TypeClassID}, key...)
	return &nft.Set{Name: name, Value: nftables.TypeVerdict, Ranges: ranges, Key: nftables.MustConcatSetType(key...)}
}

// rowsToMap is the map from the number of a set of rows and an address to the number of other rows.
func rowsToMap(f nft.Family) *nft.Set {
	return &nft.Set{Name: "rows_to-" + f.Name, Value: nftables.TypeClassID, Key: nftables.MustConcatSetType(nftables.TypeClassID, f.Address)}
}

// The maps, and the sets of interfaces.
var (
	rowsOf     = &nft.Set{Name: "rows_of", Value: nftables.TypeClassID, Key: nftables.TypeIFIndex} // of a pod's host end
	rowsTo     = map[string]*nft.Set{nft.IPv4.Name: rowsToMap(nft.IPv4), nft.IPv6.Name: rowsToMap(nft.IPv6)}
	ports      = verdicts("ports", false, nftables.TypeInetProto, nftables.TypeInetService)
	portRanges = verdicts("port_ranges", true, nftables.TypeInetProto, nftables.TypeInetService)
	icmp4Types = verdicts("icmp4_types", false, nftables.TypeICMPType)
	icmp6Types = verdicts("icmp6_types", false, nftables.TypeICMP6Type)
	protocols  = verdicts("protocols", false, nftables.TypeInetProto)
	others     = &nft.Set{Name: "others", Value: nftables.TypeVerdict, Key: nftables.TypeClassID}
	restricted = &nft.Set{Name: "restricted", Key: nftables.TypeIFIndex} // pods' host ends
	enforced   = &nft.Set{Name: "enforced", Key: nftables.TypeIFIndex}   // devices where a program enforces egress policies

	rowMaps = []*nft.Set{ports, portRanges, icmp4Types, icmp6Types, protocols, others} // in the order of their precedence
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
	Sets:        append(slices.Clone(rowMaps), rowsOf, rowsTo[nft.IPv4.Name], rowsTo[nft.IPv6.Name], restricted, enforced),
	Unsupported: ErrUnsupported,
	Chains: []nft.Chain{
		{Name: denied, Rules: []nft.Rule{nft.On("denied by an egress policy").Count().Verdict(expr.VerdictDrop)}},
		{
			Name: input, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookInput, Order: beforeFilters,
			Rules: slices.Concat([]nft.Rule{
				nft.On("not from a restricted pod").Meta(expr.MetaKeyIIF, 0).Lookup(restricted, nft.NotIn).Verdict(expr.VerdictAccept),
				diverted(nft.On("to the proxy, which applies the policies")).Verdict(expr.VerdictAccept),
				reply(nft.On("replies")).Verdict(expr.VerdictAccept),
				related(nft.On("ICMP errors about connections").Protocol(unix.IPPROTO_ICMP)).Verdict(expr.VerdictAccept),
				related(nft.On("ICMPv6 errors about connections").Protocol(unix.IPPROTO_ICMPV6)).Verdict(expr.VerdictAccept),
				neighbourDiscovery(nft.On("neighbour discovery").Protocol(unix.IPPROTO_ICMPV6)).Verdict(expr.VerdictAccept),
			}, setRows(), []nft.Rule{
				load(nft.On("protocol and port")).Meta(expr.MetaKeyL4PROTO, 1).Transport(2, 2, 2).Lookup(ports, nft.In),
				load(nft.On("protocol and ports")).Meta(expr.MetaKeyL4PROTO, 1).Transport(2, 2, 2).Lookup(portRanges, nft.In),
				load(nft.On("type of ICMP").Protocol(unix.IPPROTO_ICMP)).Transport(0, 1, 1).Lookup(icmp4Types, nft.In),
				load(nft.On("type of ICMPv6").Protocol(unix.IPPROTO_ICMPV6)).Transport(0, 1, 1).Lookup(icmp6Types, nft.In),
				load(nft.On("protocol")).Meta(expr.MetaKeyL4PROTO, 1).Lookup(protocols, nft.In),
				load(nft.On("all others")).Lookup(others, nft.In),
				// Between two lookups of a packet, its rows may have left the maps.
				nft.On("no row").With(&expr.Verdict{Kind: expr.VerdictGoto, Chain: denied}),
			}),
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

// setRows returns the rules that write the number of the pod's rows to the packet's priority, and over it the number
// of its rows to the address if it has such rows. Nothing reads the priority on the way to the node itself. nft cannot
// list a rule whose key has a value from another map. A priority that the pod has set is overwritten.
func setRows() []nft.Rule {
	rules := []nft.Rule{
		setPriority(nft.On("no rows").With(&expr.Immediate{Register: nft.Register(0), Data: []byte(number(none))})),
		setPriority(nft.On("rows of the interface").Meta(expr.MetaKeyIIF, 0).Load(rowsOf)),
	}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		rules = append(rules, setPriority(load(nft.On("rows to the address, "+f.Name).Of(f)).Destination(f, 1).Load(rowsTo[f.Name])))
	}
	return rules
}

func setPriority(r nft.Rule) nft.Rule {
	return r.With(&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: nft.Register(0)})
}

// load loads what setRows has written.
func load(r nft.Rule) nft.Rule { return r.Meta(expr.MetaKeyPRIORITY, 0) }
