package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/labels"
)

// PoolState says whether nodes may claim blocks of a pool.
type PoolState string

// The states of a pool.
const (
	// PoolPending is a pool, or a change of one, that was not yet compared with the others.
	PoolPending PoolState = "pending"
	// PoolAccepted is a pool that has no address in common with another one, nor with a block of another one.
	PoolAccepted PoolState = "accepted"
	// PoolDeleting is a pool that an administrator deletes: no node claims from it any more.
	PoolDeleting PoolState = "deleting"
)

// Pool is a named set of addresses. It is a value: its slices and maps are not changed.
type Pool struct {
	Name string `json:"name"`
	// UID is random: a pool that is created again under its name is another one, unless nodes have blocks of it.
	UID   string    `json:"uid"`
	State PoolState `json:"state"`

	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Pending are the prefixes that the pool is to have, until they were compared with the other pools'.
	Pending []netip.Prefix `json:"pending,omitempty"`
	// IPv4BlockBits and IPv6BlockBits are the prefix lengths of a block. They never change.
	IPv4BlockBits int `json:"ipv4BlockBits"`
	IPv6BlockBits int `json:"ipv6BlockBits"`
	// Exclude are addresses that are not given out.
	Exclude []netip.Prefix `json:"exclude,omitempty"`
	// NodeSelector are labels that a node must have to claim blocks; none is every node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// AllowedNamespaces are the namespaces whose pods may have addresses; none is every namespace.
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
	// Disabled pools are not claimed from. Addresses in use stay.
	Disabled bool `json:"disabled,omitempty"`
	// Quarantine is how long a released address rests.
	Quarantine time.Duration `json:"quarantine"`
	// ReuseResting says that the address that rests longest is given out when nothing else is free.
	ReuseResting bool `json:"reuseResting,omitempty"`

	Deleting bool    `json:"-"`
	Version  Version `json:"-"`
}

// DefaultPool is the pool of whoever asks for none.
const DefaultPool = "default"

// What holds of a pool that does not say otherwise: blocks of 64 addresses, which rest for 30 s.
const (
	DefaultIPv4BlockBits = 26
	DefaultIPv6BlockBits = 122
	DefaultQuarantine    = 30 * time.Second
	MaxQuarantine        = 20 * time.Minute
)

// The sizes of blocks, as prefix lengths: an IPv4 block has at most 65,536 addresses, an IPv6 block is at most a /64.
const (
	minIPv4BlockBits = 16
	minIPv6BlockBits = 64
)

// maxRanges bounds the prefixes, the exclusions and the namespaces of one pool, so that its record stays small.
const maxRanges = 256

// WithDefaults sets the sizes of blocks that are not set.
func (p Pool) WithDefaults() Pool {
	if p.IPv4BlockBits == 0 {
		p.IPv4BlockBits = DefaultIPv4BlockBits
	}
	if p.IPv6BlockBits == 0 {
		p.IPv6BlockBits = DefaultIPv6BlockBits
	}
	return p
}

// Validate reports every fault of the pool by itself.
func (p Pool) Validate() error {
	var errs []error
	if err := v1.CheckPoolName(p.Name); err != nil {
		errs = append(errs, fmt.Errorf("pool name %.64q %w: want %s", p.Name, err, v1.PoolNameRule))
	}
	if len(p.Prefixes) == 0 {
		errs = append(errs, errors.New("no prefix: want at least one, such as 10.244.0.0/16"))
	}
	for what, n := range map[string]int{"prefixes": len(p.Prefixes), "exclude": len(p.Exclude), "allowedNamespaces": len(p.AllowedNamespaces)} {
		if n > maxRanges {
			errs = append(errs, fmt.Errorf("%s: %d of them, at most %d fit into one pool: make another pool", what, n, maxRanges))
		}
	}
	errs = append(errs, p.checkBlockBits())
	for i, prefix := range p.Prefixes {
		errs = append(errs, p.checkPrefix(prefix))
		for _, other := range p.Prefixes[:i] {
			if prefix.Overlaps(other) {
				errs = append(errs, fmt.Errorf("prefix %s overlaps %s", prefix, other))
			}
		}
	}
	errs = append(errs, p.checkExclude())
	for _, name := range p.AllowedNamespaces {
		if err := v1.CheckPoolName(name); err != nil { // the rule of Kubernetes is the same
			errs = append(errs, fmt.Errorf("allowed namespace %.64q %w: want %s", name, err, v1.PoolNameRule))
		}
	}
	errs = append(errs, p.checkQuarantine(), labels.Check("node selector", p.NodeSelector))
	return fault.Wrap(fault.Invalid, errors.Join(errs...))
}

func (p Pool) checkBlockBits() error {
	var errs []error
	if p.IPv4BlockBits < minIPv4BlockBits || p.IPv4BlockBits > 32 {
		errs = append(errs, fmt.Errorf("IPv4 block /%d: want /%d to /32", p.IPv4BlockBits, minIPv4BlockBits))
	}
	if p.IPv6BlockBits < minIPv6BlockBits || p.IPv6BlockBits > 128 {
		errs = append(errs, fmt.Errorf("IPv6 block /%d: want /%d to /128", p.IPv6BlockBits, minIPv6BlockBits))
	}
	return errors.Join(errs...)
}

func (p Pool) checkQuarantine() error {
	if p.Quarantine < 0 || p.Quarantine > MaxQuarantine {
		return fmt.Errorf("quarantine %s: want 0 to %s", p.Quarantine, MaxQuarantine)
	}
	return nil
}

func (p Pool) checkPrefix(prefix netip.Prefix) error {
	switch {
	case !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6():
		return fmt.Errorf("prefix %s: want an address with no bits after its length, such as 10.244.0.0/16", prefix)
	case !prefix.Addr().IsGlobalUnicast():
		return fmt.Errorf("prefix %s: its addresses are not unicast addresses", prefix)
	case prefix.Bits() > p.BlockBits(FamilyOf(prefix.Addr())):
		return fmt.Errorf("prefix %s is smaller than a block, /%d: want a larger prefix or smaller blocks", prefix, p.BlockBits(FamilyOf(prefix.Addr())))
	}
	return nil
}

// checkExclude refuses what nothing can come of, and what leaves nothing of a family.
func (p Pool) checkExclude() error {
	var errs []error
	for _, e := range p.Exclude {
		switch {
		case !e.IsValid() || e != e.Masked():
			errs = append(errs, fmt.Errorf("exclude %s: want an address with no bits after its length", e))
		case !slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool { return prefix.Bits() <= e.Bits() && prefix.Contains(e.Addr()) }):
			errs = append(errs, fmt.Errorf("exclude %s: it is in no prefix of the pool", e))
		}
	}
	for _, f := range Families {
		has := slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool { return FamilyOf(prefix.Addr()) == f })
		if has && p.Blocks(f) == 0 && len(p.Exclude) > 0 && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("exclude: it leaves no %s address: disable the pool, or take its %[1]s prefixes out", f))
		}
	}
	return errors.Join(errs...)
}

// Claimable reports whether a node with these labels may claim blocks of the pool.
func (p Pool) Claimable(nodeLabels map[string]string) bool {
	for key, value := range p.NodeSelector {
		if got, ok := nodeLabels[key]; !ok || got != value {
			return false
		}
	}
	return p.State == PoolAccepted && !p.Disabled && !p.Deleting
}

// HasBlock reports whether the CIDR is a block of the pool.
func (p Pool) HasBlock(cidr netip.Prefix) bool {
	return cidr == cidr.Masked() && cidr.Bits() == p.BlockBits(FamilyOf(cidr.Addr())) && slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool {
		return prefix.Bits() <= cidr.Bits() && prefix.Contains(cidr.Addr())
	})
}

// BlockOf returns the block that the address is in.
func (p Pool) BlockOf(addr netip.Addr) (cidr netip.Prefix, ok bool) {
	cidr = netip.PrefixFrom(addr, p.BlockBits(FamilyOf(addr))).Masked()
	return cidr, p.HasBlock(cidr)
}

// ValidateStored checks a pool that was read. It accepts more than [Pool.Validate]: an exclusion may be of a prefix
// that is pending.
func (p Pool) ValidateStored() error {
	errs := []error{p.checkBlockBits()}
	for _, prefix := range slices.Concat(p.Prefixes, p.Pending) {
		errs = append(errs, p.checkPrefix(prefix))
	}
	for _, e := range p.Exclude {
		if !e.IsValid() || e != e.Masked() {
			errs = append(errs, fmt.Errorf("exclude %s: want an address with no bits after its length", e))
		}
	}
	return errors.Join(append(errs, p.checkQuarantine())...)
}
