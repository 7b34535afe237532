package nft

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Rule is a rule, written from left to right as nft has it. Each method returns the rule with one more part. A packet
// that a part does not match skips the rest.
type Rule struct {
	comment string
	exprs   []expr.Any
}

// On begins a rule.
func On(comment string) Rule { return Rule{comment: comment} }

// With adds expressions of the library.
func (r Rule) With(exprs ...expr.Any) Rule {
	r.exprs = append(r.exprs[:len(r.exprs):len(r.exprs)], exprs...)
	return r
}

// Register is a 32-bit register that expressions pass values in. A value takes as many as it is long.
func Register(word uint32) uint32 { return unix.NFT_REG32_00 + word }

// Meta loads what the kernel knows of the packet.
func (r Rule) Meta(key expr.MetaKey, word uint32) Rule {
	return r.With(&expr.Meta{Key: key, Register: Register(word)})
}

// Network loads bytes of the network header.
func (r Rule) Network(offset, length, word uint32) Rule {
	return r.With(&expr.Payload{DestRegister: Register(word), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length})
}

// Transport loads bytes of the transport header. The rule does not match a packet without one.
func (r Rule) Transport(offset, length, word uint32) Rule {
	return r.With(&expr.Payload{DestRegister: Register(word), Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length})
}

// Equal compares what is loaded.
func (r Rule) Equal(word uint32, data ...byte) Rule {
	return r.With(&expr.Cmp{Op: expr.CmpOpEq, Register: Register(word), Data: data})
}

// NotEqual compares what is loaded.
func (r Rule) NotEqual(word uint32, data ...byte) Rule {
	return r.With(&expr.Cmp{Op: expr.CmpOpNeq, Register: Register(word), Data: data})
}

// Whether a lookup matches packets with an element, or those without.
const (
	In    = false
	NotIn = true
)

// Lookup looks for what was loaded from word 0 on. In a map of verdicts it goes on with the element's verdict.
func (r Rule) Lookup(s *Set, invert bool) Rule {
	return r.With(&expr.Lookup{SourceRegister: Register(0), SetName: s.Name, IsDestRegSet: s.isMap(), Invert: invert})
}

// Load replaces what was loaded from word 0 on by the value that the map has for it.
func (r Rule) Load(s *Set) Rule {
	return r.With(&expr.Lookup{SourceRegister: Register(0), DestRegister: Register(0), SetName: s.Name, IsDestRegSet: true})
}

// Protocol matches a transport protocol.
func (r Rule) Protocol(number byte) Rule { return r.Meta(expr.MetaKeyL4PROTO, 0).Equal(0, number) }

// Family is IPv4 or IPv6, as far as rules and sets differ.
type Family struct {
	Name                string // "ipv4"
	Number              byte   // NFPROTO_...
	Address             nftables.SetDatatype
	source, destination uint32
	size                uint32 // of an address, in bytes
}

// The families.
var (
	IPv4 = Family{Name: "ipv4", Number: unix.NFPROTO_IPV4, Address: nftables.TypeIPAddr, source: 12, destination: 16, size: 4}
	IPv6 = Family{Name: "ipv6", Number: unix.NFPROTO_IPV6, Address: nftables.TypeIP6Addr, source: 8, destination: 24, size: 16}
)

// Addresses is a set of addresses of the family, or with ranges of prefixes. Its name ends with the family's.
func (f Family) Addresses(name string, ranges bool) *Set {
	return &Set{Name: name + "-" + f.Name, Key: f.Address, Ranges: ranges}
}

func (f Family) has(addr netip.Addr) bool { return addr.BitLen() == 8*int(f.size) }

// Words is how many registers an address takes.
func (f Family) Words() uint32 { return f.size / 4 }

// Of matches packets of a family.
func (r Rule) Of(f Family) Rule { return r.Meta(expr.MetaKeyNFPROTO, 0).Equal(0, f.Number) }

// Source loads the source address of a packet of the family.
func (r Rule) Source(f Family, word uint32) Rule { return r.Network(f.source, f.size, word) }

// Destination loads the destination address of a packet of the family.
func (r Rule) Destination(f Family, word uint32) Rule { return r.Network(f.destination, f.size, word) }

// HasBits matches when one of the bits of what is loaded is set.
func (r Rule) HasBits(word, bits uint32) Rule {
	return r.With(
		&expr.Bitwise{
			SourceRegister: Register(word), DestRegister: Register(word), Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: Register(word), Data: make([]byte, 4)},
	)
}

// Count counts packets; see [Owner.Packets].
func (r Rule) Count() Rule { return r.With(&expr.Counter{}) }

// Verdict decides.
func (r Rule) Verdict(kind expr.VerdictKind) Rule { return r.With(&expr.Verdict{Kind: kind}) }
