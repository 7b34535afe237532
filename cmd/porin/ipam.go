package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
)

func ipamList(ctx context.Context, s *session, _ []string) error {
	answer, err := s.client.IPAM(ctx)
	return s.show(answer, err, func(w io.Writer) { s.ipamTable(w, answer) })
}

func (s *session) ipamTable(w io.Writer, answer v1.IPAM) {
	rangeTable(w, answer)
	_, _ = fmt.Fprintln(w)
	row(w, "ADDRESS", "POOL", "OWNER", "INTERFACE", "CONTAINER", "AGE")
	has := map[netip.Addr]bool{}
	for _, a := range answer.Allocations {
		row(w, a.Address, a.Pool, ownerOf(a), a.IfName, shortID(a.ContainerID), s.ageOf(a))
		has[a.Address] = true
	}
	for _, pool := range answer.Pools {
		for _, r := range pool.Ranges {
			for _, addr := range r.NodeAddresses {
				if !has[addr] { // whoever has it is shown above
					row(w, addr, pool.Name, "the node itself", "", "", "")
				}
			}
		}
	}
}

// ownerOf is the pod, or whoever has reserved the address; "" when only the container is known. Of what is held and
// unnamed it says by what to find it on the node, and in porin status.
func ownerOf(a v1.Allocation) string {
	if a.Unnamed {
		return "held: unknown container of " + a.Owner
	}
	if pod := podName(a.Pod); pod != "" || a.ContainerID != "" {
		return pod
	}
	return a.Owner
}

// rangeTable is of what the agent itself gives out from.
func rangeTable(w io.Writer, answer v1.IPAM) {
	if len(answer.Pools) == 0 {
		_, _ = fmt.Fprintf(w, "No addresses to give out: this agent runs --ipam-mode %s.\n", printable(answer.Mode))
		return
	}
	row(w, "POOL", "PREFIX", "CAPACITY", "USED", "QUARANTINED", "FREE")
	for _, pool := range answer.Pools {
		for _, r := range pool.Ranges {
			free := fmt.Sprint(r.Free)
			if r.Drained {
				free = "drained"
			}
			row(w, pool.Name, r.Prefix, r.Capacity, r.Used, r.Quarantined, free)
		}
	}
}

// ageOf is how long an address has had its owner, and how long yet if it is reserved.
func (s *session) ageOf(a v1.Allocation) string {
	if a.Permanent {
		return s.age(a.Since) + " (reserved permanently)"
	}
	if a.Expires.IsZero() {
		return s.age(a.Since)
	}
	return fmt.Sprintf("%s (reserved, %s left)", s.age(a.Since), s.ahead(a.Expires))
}
