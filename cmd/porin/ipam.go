package main

import (
	"context"
	"fmt"
	"io"
)

func ipamList(ctx context.Context, s *session, _ []string) error {
	answer, err := s.client.IPAM(ctx)
	if err != nil {
		return err
	}
	return s.print(answer, func(w io.Writer) {
		row(w, "POOL", "PREFIX", "CAPACITY", "USED", "QUARANTINED", "FREE")
		for _, pool := range answer.Pools {
			for _, r := range pool.Ranges {
				row(w, pool.Name, r.Prefix, r.Capacity, r.Used, r.Quarantined, r.Free)
			}
		}
		_, _ = fmt.Fprintln(w)
		row(w, "ADDRESS", "POOL", "OWNER", "AGE")
		for _, a := range answer.Allocations {
			row(w, a.Address, a.Pool, a.Owner, s.age(a.Since))
		}
	})
}
