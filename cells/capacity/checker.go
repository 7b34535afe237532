package capacity

import (
	"context"
	"fmt"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
)

// runsOut is the kind of the doctor's note about a resource.
const runsOut = "resource-runs-out"

// checker notes what the next ADDs will lack. It is no disagreement: only the node's administrator can repair it.
type checker struct{ capacity *Capacity }

func newChecker(c *Capacity) checker { return checker{c} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "capacity" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name: runsOut, Meaning: "an ADD needs it, and there is none left, or will be none soon as its use grows",
		Repair: "give the node more of it, such as a larger pool, or delete containers", Note: true, Event: true,
	}}
}

// Examine implements doctor.Checker.
func (c checker) Examine(_ context.Context, only string) (notes []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	for _, r := range c.capacity.runningOut() {
		if detail := forecast(r); detail != "" {
			notes = append(notes, doctor.Finding{Kind: runsOut, Subject: r.Name, Detail: detail})
		}
	}
	return notes, nil
}

// forecast says what an ADD will lack of the resource, and when; "" when nothing points to that.
func forecast(r v1.Resource) string {
	switch {
	case !r.Available:
		return r.Reason
	case r.ExhaustedIn > 0:
		left := r.Capacity - r.Used - r.Quarantined
		return fmt.Sprintf("%d of %d are left, and none will be in %s as its use grows now", left, r.Capacity, r.ExhaustedIn.Round(time.Second))
	}
	return ""
}
