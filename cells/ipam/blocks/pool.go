package blocks

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/labels"
)

// Pool is a named set of addresses of the cluster. It is a value; Prefixes is not to be changed.
type Pool struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
	// These are the prefix lengths of a block, one a family.
	IPv4BlockBits int `json:"ipv4BlockBits"`
	IPv6BlockBits int `json:"ipv6BlockBits"`
	// NodeSelector are labels that a node must have to claim blocks; none is every node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Disabled pools are not claimed from. What is in use stays.
	Disabled bool `json:"disabled,omitempty"`
	// Quarantine is how long a released address rests.
	Quarantine time.Duration `json:"quarantine"`
	// ReuseResting says that the address that rests longest is given out when nothing else is free.
	ReuseResting bool `json:"reuseResting,omitempty"`
}

// The sizes of a block unless the pool says otherwise: 64 addresses.
const (
	DefaultIPv4BlockBits = 26
	DefaultIPv6BlockBits = 122
	DefaultQuarantine    = 30 * time.Second
	MaxQuarantine        = 20 * time.Minute
)

// A block has at least four addresses, and at most 65,536.
const (
	leastHostBits = 2
	mostHostBits  = 16
)

// WithDefaults sets what is not set.
func (p Pool) WithDefaults() Pool {
	if p.IPv4BlockBits == 0 {
		p.IPv4BlockBits = DefaultIPv4BlockBits
	}
	if p.IPv6BlockBits == 0 {
		p.IPv6BlockBits = DefaultIPv6BlockBits
	}
	if p.Quarantine == 0 {
		p.Quarantine = DefaultQuarantine
	}
	return p
}

// Validate reports every fault.
func (p Pool) Validate() error {
	var errs []error
	for i, prefix := range p.Prefixes {
		for _, other := range p.Prefixes[:i] {
			if prefix.Overlaps(other) {
				errs = append(errs, fmt.Errorf("prefix %s overlaps %s", prefix, other))
			}
		}
	}
	errs = append(errs, p.checkAlone(), labels.Check("node selector", p.NodeSelector))
	return fault.Wrap(fault.Invalid, errors.Join(errs...))
}

// checkAlone looks at each thing by itself.
func (p Pool) checkAlone() error {
	var errs []error
	if err := v1.CheckPoolName(p.Name); err != nil {
		errs = append(errs, fmt.Errorf("pool name %.64q %w: want %s", p.Name, err, v1.PoolNameRule))
	}
	if len(p.Prefixes) == 0 {
		errs = append(errs, errors.New("no prefix: want at least one, such as 10.244.0.0/16"))
	}
	for _, prefix := range p.Prefixes {
		errs = append(errs, p.checkPrefix(prefix))
	}
	for _, family := range []struct {
		name       string
		bits, most int
	}{{"IPv4", p.IPv4BlockBits, 32}, {"IPv6", p.IPv6BlockBits, 128}} {
		if host := family.most - family.bits; host < leastHostBits || host > mostHostBits {
			errs = append(errs, fmt.Errorf("%s block /%d: want /%d to /%d", family.name, family.bits, family.most-mostHostBits, family.most-leastHostBits))
		}
	}
	if p.Quarantine < 0 || p.Quarantine > MaxQuarantine {
		errs = append(errs, fmt.Errorf("quarantine %s: want 0 to %s", p.Quarantine, MaxQuarantine))
	}
	return errors.Join(errs...)
}

func (p Pool) checkPrefix(prefix netip.Prefix) error {
	switch {
	case !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6():
		return fmt.Errorf("prefix %s: want an address with no bits behind its length, such as 10.244.0.0/16", prefix)
	case !prefix.Addr().IsGlobalUnicast():
		return fmt.Errorf("prefix %s: its addresses are not unicast addresses", prefix)
	case prefix.Bits() > p.blockBits(prefix):
		return fmt.Errorf("prefix %s is smaller than a block, /%d: want a larger prefix or smaller blocks", prefix, p.blockBits(prefix))
	}
	return nil
}

// overlaps returns a prefix of each that have addresses in common.
func (p Pool) overlaps(other Pool) (a, b netip.Prefix, yes bool) {
	for _, a := range p.Prefixes {
		for _, b := range other.Prefixes {
			if a.Overlaps(b) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// fits tells whether a node of these labels may claim.
func (p Pool) fits(labels map[string]string) bool {
	for key, value := range p.NodeSelector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// has tells whether a block is of the pool as it is now.
func (p Pool) has(block netip.Prefix) bool {
	return slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool {
		return prefix.Contains(block.Addr()) && prefix.Bits() <= block.Bits()
	})
}

func (p Pool) blockBits(prefix netip.Prefix) int {
	if prefix.Addr().Is4() {
		return p.IPv4BlockBits
	}
	return p.IPv6BlockBits
}

// family selects prefixes.
type family bool

const (
	ipv4 family = false
	ipv6 family = true
)

func familyOf(prefix netip.Prefix) family { return family(prefix.Addr().Is6()) }

func (f family) String() string {
	if f == ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

// count returns how many blocks the pool's prefixes of a family have, at most 1<<62.
func (p Pool) count(f family) uint64 {
	var sum uint64
	for _, prefix := range p.Prefixes {
		if familyOf(prefix) == f {
			sum += p.countOf(prefix)
		}
	}
	return min(sum, 1<<62)
}

func (p Pool) countOf(prefix netip.Prefix) uint64 {
	return 1 << min(p.blockBits(prefix)-prefix.Bits(), 61)
}

// block returns the pool's i-th block of a family.
func (p Pool) block(f family, i uint64) netip.Prefix {
	for _, prefix := range p.Prefixes {
		if familyOf(prefix) != f {
			continue
		}
		n := p.countOf(prefix)
		if i < n {
			return nth(prefix, p.blockBits(prefix), i)
		}
		i -= n
	}
	return netip.Prefix{}
}

// indexOf is the reverse of block. It is false for what is no block of the pool as it is now.
func (p Pool) indexOf(block netip.Prefix) (uint64, bool) {
	var before uint64
	for _, prefix := range p.Prefixes {
		if familyOf(prefix) != familyOf(block) {
			continue
		}
		if prefix.Contains(block.Addr()) {
			return before + place(prefix, block), block.Bits() == p.blockBits(prefix)
		}
		before += p.countOf(prefix)
	}
	return 0, false
}

// blockOf returns the block that an address is in. It is false when that is not in the pool.
func (p Pool) blockOf(addr netip.Addr) (netip.Prefix, bool) {
	for _, prefix := range p.Prefixes {
		if prefix.Contains(addr) {
			return netip.PrefixFrom(addr, p.blockBits(prefix)).Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// place is the reverse of nth.
func place(prefix, part netip.Prefix) uint64 {
	raw := part.Addr().AsSlice()
	n := new(big.Int).Sub(new(big.Int).SetBytes(raw), new(big.Int).SetBytes(prefix.Addr().AsSlice()))
	return n.Rsh(n, uint(8*len(raw)-part.Bits())).Uint64()
}

// nth returns the i-th part of a prefix that is bits long.
func nth(prefix netip.Prefix, bits int, i uint64) netip.Prefix {
	raw := prefix.Addr().AsSlice()
	n := new(big.Int).SetBytes(raw)
	n.Add(n, new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(8*len(raw)-bits)))
	addr, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, len(raw))))
	return netip.PrefixFrom(addr, bits)
}
