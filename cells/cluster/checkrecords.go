package cluster

import "fmt"

// A backend returns a record that does not pass these checks as [ErrUnreadable].

// Validate checks the node's ID.
func (n Node) Validate() error { return n.ID.Validate() }

// Validate checks the node's ID.
func (s Session) Validate() error { return s.Node.Validate() }

// Validate checks the CIDR and the owner.
func (b Block) Validate() error {
	if !b.CIDR.IsValid() || b.CIDR != b.CIDR.Masked() {
		return fmt.Errorf("block %s: want an address with no bits after its length", b.CIDR)
	}
	return b.Owner.Validate()
}
