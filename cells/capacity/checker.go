package capacity

import (
	"context"

	"porin.dev/porin/cells/doctor"
)

// runsOut is the kind of the doctor's note about a resource.
const runsOut = "resource-runs-out"

// checker notes what the next ADD will lack. It is no disagreement: only the node's administrator can repair it.
type checker struct{ capacity *Capacity }

func newChecker(c *Capacity) checker { return checker{c} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "capacity" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name: runsOut, Meaning: "an ADD needs it, and there is none left",
		Repair: "give the node more of it, such as a larger pool, or delete containers", Note: true, Event: true,
	}}
}

// Examine implements doctor.Checker.
func (c checker) Examine(_ context.Context, only string) (notes []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	for _, r := range c.capacity.lacking() {
		notes = append(notes, doctor.Finding{Kind: runsOut, Subject: r.Name, Detail: r.Reason})
	}
	return notes, nil
}
