package main

import (
	"context"
	"fmt"
	"io"

	v1 "porin.dev/porin/api/v1"
)

func ipamList(ctx context.Context, s *session, _ []string) error {
	answer, err := s.client.IPAM(ctx)
	if err != nil {
		return err
	}
	return s.print(answer, func(w io.Writer) { s.ipamTable(w, answer) })
}

func (s *session) ipamTable(w io.Writer, answer v1.IPAM) {
	row(w, "POOL", "PREFIX", "CAPACITY", "USED", "QUARANTINED", "FREE")
	for _, pool := range answer.Pools {
		for _, r := range pool.Ranges {
			row(w, pool.Name, r.Prefix, r.Capacity, r.Used, r.Quarantined, freeOf(r))
		}
	}
	_, _ = fmt.Fprintln(w)
	row(w, "ADDRESS", "POOL", "OWNER", "AGE")
	for _, a := range answer.Allocations {
		row(w, a.Address, a.Pool, a.Owner, s.ageOf(a))
	}
}

// freeOf is what is to be had of a range.
func freeOf(r v1.Range) string {
	if r.Drained {
		return "drained"
	}
	return fmt.Sprint(r.Free)
}

// ageOf is how long somebody has had an address, and how long yet if it is reserved.
func (s *session) ageOf(a v1.Allocation) string {
	age := s.age(a.Since)
	if a.Expires.IsZero() {
		return age
	}
	left := max(a.Expires.Sub(s.now()), 0)
	return fmt.Sprintf("%s (reserved, %s left)", age, s.age(s.now().Add(-left)))
}
