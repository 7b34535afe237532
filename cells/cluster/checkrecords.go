package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// maxEpoch bounds [ClusterInfo.Epoch], so that it can grow and that the generation of a pool can have it: one recovery
// a second for 68 years.
const maxEpoch = 1 << 31

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
	if p.Generation >= maxEpoch<<32 {
		errs = append(errs, fmt.Errorf("generation %d is too high", p.Generation))
	}
	return errors.Join(append(errs, p.checkQuarantine())...)
}

func checkBlock(b Block) error {
	if !b.CIDR.IsValid() || b.CIDR != b.CIDR.Masked() {
		return fmt.Errorf("block %s: want an address with no bits after its length", b.CIDR)
	}
	return b.Owner.Validate()
}

func checkInfo(info ClusterInfo) error {
	if info.Epoch >= maxEpoch {
		return fmt.Errorf("epoch %d is too high", info.Epoch)
	}
	return nil
}
