package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// What follows refuses a record with values that nobody writes and that whoever calculates with them does not expect:
// it is [ErrUnreadable]. It asks for less than [Pool.Validate], as an exclusion may be of a prefix that is pending.

func checkNode(n Node) error       { return n.ID.Validate() }
func checkSession(s Session) error { return s.Node.Validate() }

func checkPool(p Pool) error {
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

func checkBlock(b Block) error {
	if !b.CIDR.IsValid() || b.CIDR != b.CIDR.Masked() {
		return fmt.Errorf("block %s: want an address with no bits after its length", b.CIDR)
	}
	return b.Owner.Validate()
}
