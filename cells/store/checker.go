package store

import (
	"context"
	"errors"
	"time"

	"porin.dev/porin/cells/doctor"
)

// storeUnreachable is the kind of disagreement, by the name that programs know it by.
const storeUnreachable = "store-unreachable"

// probeTime is how long the doctor waits for an answer.
const probeTime = time.Second

// probeKey is a key that nobody writes.
const probeKey = "doctor/probe"

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
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	_, err := c.service.Get(ctx, probeKey)
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return []doctor.Finding{{Kind: storeUnreachable, Subject: c.service.backend.location(), Detail: err.Error()}}, nil
}

var _ doctor.Checker = (*checker)(nil)
