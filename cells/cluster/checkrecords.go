package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// A backend returns a record that does not pass these checks as [ErrUnreadable].

// Validate checks the node's ID.
func (n Node) Validate() error { return n.ID.Validate() }

// Validate checks the node's ID.
func (s Session) Validate() error { return s.Node.Validate() }

// ValidateStored checks a pool that was read. It accepts more than [Pool.Validate]: an exclusion may be of a prefix that is pending.
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

// Validate checks the CIDR and the owner.
func (b Block) Validate() error {
	if !b.CIDR.IsValid() || b.CIDR != b.CIDR.Masked() {
		return fmt.Errorf("block %s: want an address with no bits after its length", b.CIDR)
	}
	return b.Owner.Validate()
}
