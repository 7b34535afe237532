package store

import (
	"context"

	"porin.dev/porin/cells/doctor"
)

// storeUnreachable is the kind of disagreement, by the name that programs know it by.
const storeUnreachable = "store-unreachable"

// checker asks the store something: its doctor.Checker.
type checker struct{ service *service }

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "store" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name:    storeUnreachable,
		Meaning: "the cluster's store does not answer: no block is claimed or given back, and other nodes' changes are not seen",
		Repair:  "bring it back, or correct the agent's store flags; pods keep their network, and new ones get addresses while own blocks have room",
	}}
}

// Examine implements doctor.Checker.
func (c *checker) Examine(ctx context.Context, only string) ([]doctor.Finding, error) {
	if only != "" {
		return nil, nil
	}
	if err := c.service.probe(ctx); err != nil {
		return []doctor.Finding{{Kind: storeUnreachable, Subject: c.service.backend.location(), Detail: reasonOf(err).Error()}}, nil
	}
	return nil, nil
}

var _ doctor.Checker = (*checker)(nil)
