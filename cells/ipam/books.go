package ipam

import "net/netip"

// Books are the allocator's own records, looked at from inside: they say the same thing in three places, and a fault of the
// allocator would have them differ. No method blocks.
type Books interface {
	// Audit looks through all of it.
	Audit() Audit
	// Mend makes a flaw right, if it is still there. What nobody owns rests then like what was released.
	Mend(f Flaw)
	// Standing tells whether the allocator may give an address out, now or later, and who has it, or "".
	Standing(addr netip.Addr) (ours bool, owner Handle)
}

// Audit is what an [Books.Audit] has found.
type Audit struct {
	Owners, Addresses, Ranges int // how many there are; a range is a prefix or a block
	Flaws                     []Flaw
	// Outside are the addresses that lie in no range, those of other IPAMs apart. That is as it may be: the settings have
	// changed, or a pool's prefix is gone.
	Outside map[netip.Addr]bool
}

// FlawKind is how records differ.
type FlawKind int

// The kinds of a [Flaw].
const (
	// Bare is an owner on record of whom no address is.
	Bare FlawKind = iota
	// Ownerless is an address that is in use by nobody.
	Ownerless
	// Unmarked is an address that has an owner, and of which its range does not know.
	Unmarked
)

// Flaw is one difference. It is a value, and two can be compared with ==.
type Flaw struct {
	Kind    FlawKind
	Owner   Handle     // of Bare and Unmarked
	Seq     uint64     // that of the owner's allocation
	Address netip.Addr // of Ownerless and Unmarked
}
