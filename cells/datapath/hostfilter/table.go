package hostfilter

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

var table = &nftables.Table{Name: "porin", Family: nftables.TableFamilyINet}

// set is a set of interfaces, or a map from a key that begins with an interface to a verdict.
type set struct {
	name   string
	key    nftables.SetDatatype
	isMap  bool
	ranges bool
}

var (
	ports      = &set{name: "ports", key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeInetProto, nftables.TypeInetService), isMap: true, ranges: true}
	protocols  = &set{name: "protocols", key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeInetProto), isMap: true}
	others     = &set{name: "others", key: nftables.TypeIFIndex, isMap: true}
	restricted = &set{name: "restricted", key: nftables.TypeIFIndex} // pods' host ends
	enforced   = &set{name: "enforced", key: nftables.TypeIFIndex}   // devices where a program enforces egress policies

	sets = []*set{ports, protocols, others, restricted, enforced}
)

func (s *set) nft() *nftables.Set {
	n := &nftables.Set{
		Table: table, Name: s.name, KeyType: s.key, IsMap: s.isMap, Interval: s.ranges, Concatenation: s.key.Bytes > 4,
		KeyByteOrder: binaryutil.NativeEndian,
	}
	if s.isMap {
		n.DataType = nftables.TypeVerdict
	}
	return n
}

// chain is a chain and its rules.
type chain struct {
	nft   *nftables.Chain
	rules []rule
}

type rule struct {
	comment string
	exprs   []expr.Any
}

// The names of chains.
const (
	input   = "input"
	forward = "forward"
	denied  = "denied"
)

// chains are those of the table; denied is made first, as elements of the maps go to it.
var chains = []chain{
	{
		&nftables.Chain{Table: table, Name: denied},
		[]rule{{"denied by an egress policy", rule{}.counter().verdict(expr.VerdictDrop).exprs}},
	},
	{
		// Before the filters of others, and after all translation of destinations.
		&nftables.Chain{Table: table, Name: input, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityRef(-1), Policy: accept()},
		[]rule{
			on("not from a restricted pod").meta(expr.MetaKeyIIF, 0).lookup(restricted, notIn).verdict(expr.VerdictAccept),
			on("replies").reply().verdict(expr.VerdictAccept),
			on("ICMP errors about connections").protocol(unix.IPPROTO_ICMP).related().verdict(expr.VerdictAccept),
			on("ICMPv6 errors about connections").protocol(unix.IPPROTO_ICMPV6).related().verdict(expr.VerdictAccept),
			on("neighbour discovery").protocol(unix.IPPROTO_ICMPV6).neighbourDiscovery().verdict(expr.VerdictAccept),
			on("DHCP").dhcp().verdict(expr.VerdictAccept),
			on("interface, protocol, ports").meta(expr.MetaKeyIIF, 0).meta(expr.MetaKeyL4PROTO, 1).transport(2, 2, 2).lookup(ports, in),
			on("interface, protocol").meta(expr.MetaKeyIIF, 0).meta(expr.MetaKeyL4PROTO, 1).lookup(protocols, in),
			on("interface").meta(expr.MetaKeyIIF, 0).lookup(others, in),
		},
	},
	{
		&nftables.Chain{Table: table, Name: forward, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityRef(-1), Policy: accept()},
		[]rule{
			on("not from a restricted pod").meta(expr.MetaKeyIIF, 0).lookup(restricted, notIn).verdict(expr.VerdictAccept),
			on("to a device where a program enforces egress policies").meta(expr.MetaKeyOIF, 0).lookup(enforced, in).verdict(expr.VerdictAccept),
			on("replies").reply().verdict(expr.VerdictAccept),
			on("ICMP errors about connections").protocol(unix.IPPROTO_ICMP).related().verdict(expr.VerdictAccept),
			on("ICMPv6 errors about connections").protocol(unix.IPPROTO_ICMPV6).related().verdict(expr.VerdictAccept),
			on("to a device where no program does").counter().verdict(expr.VerdictDrop),
		},
	},
}

func accept() *nftables.ChainPolicy {
	policy := nftables.ChainPolicyAccept
	return &policy
}

// userData marks a rule as ours: its comment, with a digest of what it does. A rule that somebody has changed, or an
// older version has made, has another one.
func (r rule) userData() []byte {
	digest := sha256.New()
	for _, e := range r.exprs {
		encoded, _ := expr.Marshal(byte(table.Family), e) // cannot fail for these
		digest.Write(encoded)
	}
	return userdata.AppendString(nil, ruleComment, r.comment+" #"+hex.EncodeToString(digest.Sum(nil)[:4]))
}

func on(comment string) rule { return rule{comment: comment} }

func (r rule) with(exprs ...expr.Any) rule {
	r.exprs = append(r.exprs, exprs...)
	return r
}

// ruleComment is NFTNL_UDATA_RULE_COMMENT of libnftnl: nft list shows the text.
const ruleComment userdata.Type = 0

// register is one of the 32-bit registers by which expressions pass values.
func register(word uint32) uint32 { return unix.NFT_REG32_00 + word }

func (r rule) meta(key expr.MetaKey, word uint32) rule {
	return r.with(&expr.Meta{Key: key, Register: register(word)})
}

// transport loads bytes of the transport header. The rule does not match a packet without one.
func (r rule) transport(offset, length, word uint32) rule {
	return r.with(&expr.Payload{DestRegister: register(word), Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length})
}

func (r rule) equal(word uint32, data ...byte) rule {
	return r.with(&expr.Cmp{Op: expr.CmpOpEq, Register: register(word), Data: data})
}

// Whether a lookup matches packets with an element, or those without.
const (
	in    = false
	notIn = true
)

// lookup goes on with the element's verdict when it has one.
func (r rule) lookup(s *set, invert bool) rule {
	return r.with(&expr.Lookup{SourceRegister: register(0), SetName: s.name, IsDestRegSet: s.isMap, Invert: invert})
}

func (r rule) protocol(number byte) rule { return r.meta(expr.MetaKeyL4PROTO, 0).equal(0, number) }

// reply matches what answers the one who opened the connection.
func (r rule) reply() rule {
	const reply = 1 // IP_CT_DIR_REPLY
	return r.with(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)}).equal(0, reply)
}

// related is for ICMP: a related packet of another protocol may open a new connection.
func (r rule) related() rule {
	return r.with(
		&expr.Ct{Key: expr.CtKeySTATE, Register: register(0)},
		&expr.Bitwise{
			SourceRegister: register(0), DestRegister: register(0), Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitRELATED), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, 4)},
	)
}

// neighbourDiscovery matches solicitations and advertisements. Pods need none, as the neighbour entries on both sides
// are permanent, and from_pod drops what is link-local. The rule lets a pod whose entries were changed reach its
// gateway.
func (r rule) neighbourDiscovery() rule {
	const solicitation, advertisement = 135, 136
	return r.transport(0, 1, 0).with(&expr.Range{Op: expr.CmpOpEq, Register: register(0), FromData: []byte{solicitation}, ToData: []byte{advertisement}})
}

// dhcp matches a broadcast to the server's port: from_pod has dropped those of pods without a lease.
func (r rule) dhcp() rule {
	r = r.meta(expr.MetaKeyNFPROTO, 0).equal(0, unix.NFPROTO_IPV4)
	r = r.with(&expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}).equal(0, 255, 255, 255, 255)
	return r.protocol(unix.IPPROTO_UDP).transport(2, 2, 0).equal(0, 0, 67)
}

func (r rule) counter() rule { return r.with(&expr.Counter{}) }

func (r rule) verdict(kind expr.VerdictKind) rule { return r.with(&expr.Verdict{Kind: kind}) }
