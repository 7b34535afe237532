package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Repair looks twice, a second apart, repairs at once what both looks have found, and looks once more. It does so whatever
// the configuration says of repairs, and without a pause after one that failed, as somebody has asked for it. What is found
// in the end are the answer's Findings; what was repaired and is gone is Repaired. The only error is that ctx ended.
func (d *Doctor) Repair(ctx context.Context, about string) (v1.Doctor, error) {
	s := Scope{About: about}
	first, err := d.examine(ctx, s, always)
	if err != nil || !d.chart.any(s.mendable) {
		return first, err
	}
	select {
	case <-time.After(lookGap):
	case <-ctx.Done():
		return first, fmt.Errorf("wait for the second look: %w", ctx.Err())
	}
	second, err := d.examine(ctx, s, always)
	if err != nil {
		return second, err
	}
	agreed := func(r *record) bool {
		return s.mendable(r) && r.Times > 1 && !r.seen.Before(second.Examined) && r.acted.Before(second.Examined)
	}
	if err := d.repair(ctx, agreed); err != nil {
		return second, err
	}
	repaired := d.chart.repairedSince(second.Examined, about)
	answer, err := d.Examine(ctx, s)
	answer.Repaired = without(repaired, answer.Findings)
	return answer, err
}

// mendable tells whether a record is of the scope, and has a repair.
func (s Scope) mendable(r *record) bool {
	return r.repair != nil && (s.About == "" || r.about == s.About)
}

func (c *chart) any(which func(*record) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if which(r) {
			return true
		}
	}
	return false
}

// repairedSince are those whose last repair succeeded, at that time or later.
func (c *chart) repairedSince(since time.Time, about string) (list []v1.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.Outcome == repaired && !r.acted.Before(since) && (about == "" || r.about == about) {
			list = append(list, r.Finding)
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// without leaves out what is in the other list.
func without(list, other []v1.Finding) []v1.Finding {
	return slices.DeleteFunc(list, func(f v1.Finding) bool {
		return slices.ContainsFunc(other, func(o v1.Finding) bool {
			return o.Kind == f.Kind && o.Owner == f.Owner && o.Subject == f.Subject
		})
	})
}
