package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"

	"porin.dev/porin/internal/task"
)

// Bounds of a repair, and of the pause after a repair without effect.
const (
	repairTimeout = 30 * time.Second
	maxPause      = 5 * time.Minute
)

// repaired is the outcome of a repair that succeeded.
const repaired = "repaired"

// Repair examines twice, a second apart, repairs at once what both have found, and examines once more. It does so
// whatever the configuration says of repairs, and without a pause after a failed one, as a caller has asked for it. The
// last findings are the answer's Findings; repaired ones that are gone are Repaired. It fails only when ctx ends.
func (d *Doctor) Repair(ctx context.Context, about string) (v1.Doctor, error) {
	s := Scope{About: about}
	first, err := d.examine(ctx, s, always)
	if err != nil || len(d.findings.list(s.repairable)) == 0 {
		return first, err
	}
	if err := task.Sleep(ctx, minGap); err != nil {
		return first, fmt.Errorf("wait for the second examination: %w", err)
	}
	second, err := d.examine(ctx, s, always)
	if err != nil {
		return second, err
	}
	foundTwice := func(r *record) bool {
		return s.repairable(r) && r.Times > 1 && !r.seen.Before(second.Examined) && r.repaired.Before(second.Examined)
	}
	if err := d.repair(ctx, foundTwice); err != nil {
		return second, err
	}
	done := d.findings.list(func(r *record) bool {
		return r.Outcome == repaired && !r.repaired.Before(second.Examined) && (about == "" || r.about == about)
	})
	answer, err := d.Examine(ctx, s)
	answer.Repaired = without(done, answer.Findings)
	return answer, err
}

// without leaves out what is in the other list.
func without(list, other []v1.Finding) []v1.Finding {
	return slices.DeleteFunc(list, func(f v1.Finding) bool {
		return slices.ContainsFunc(other, func(o v1.Finding) bool {
			return o.Kind == f.Kind && o.Owner == f.Owner && o.Subject == f.Subject
		})
	})
}

// repairDue runs the repairs that are due.
func (d *Doctor) repairDue(ctx context.Context) {
	_ = d.repair(ctx, func(r *record) bool { return r.due }) // fails only when the agent stops
}

// repair runs the chosen repairs, one after the other. It fails only when ctx ends.
func (d *Doctor) repair(ctx context.Context, chosen func(*record) bool) error {
	select {
	case d.repairSlot <- struct{}{}:
		defer func() { <-d.repairSlot }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the repair that runs: %w", ctx.Err())
	}
	for _, p := range d.findings.pendingRepairs(chosen) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := runRepair(ctx, p.repair)
		d.reportRepair(d.findings.recordRepair(p.record, err, d.now()), err)
	}
	return nil
}

func (d *Doctor) reportRepair(f v1.Finding, err error) {
	log := d.log.With("kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint)
	if err != nil {
		d.meters.repairs.WithLabelValues(f.Kind, "failed").Inc()
		log.Warn("could not repair, next try when it is found again", "error", err)
		return
	}
	d.meters.repairs.WithLabelValues(f.Kind, repaired).Inc()
	log.Info("repaired", "reason", f.Detail)
}

// runRepair takes a panic of the repair for its failure.
func runRepair(ctx context.Context, repair func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return repair(ctx)
}

// pendingRepair is a record and its repair as of the examination that made it due: a later one may replace it.
type pendingRepair struct {
	record *record
	repair func(context.Context) error
}

// pendingRepairs returns the chosen repairs, oldest finding first. None of them is due again before another examination
// has found the same.
func (fs *findings) pendingRepairs(chosen func(*record) bool) (pending []pendingRepair) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, r := range fs.records {
		if chosen(r) {
			r.due = false
			pending = append(pending, pendingRepair{r, r.repair})
		}
	}
	slices.SortFunc(pending, func(a, b pendingRepair) int {
		if order := a.record.Since.Compare(b.record.Since); order != 0 {
			return order
		}
		return byName(a.record.Finding, b.record.Finding)
	})
	return pending
}

// recordRepair records how a repair ended. A success without effect counts as a failure.
func (fs *findings) recordRepair(r *record, err error, now time.Time) v1.Finding {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	r.Outcome = repaired
	if err != nil {
		r.Outcome = err.Error()
	}
	r.repaired, r.due = now, false // a look during the repair saw what was before it
	r.notBefore = now.Add(min(fs.pause<<min(r.tries, 16), maxPause))
	r.tries++
	return r.Finding
}
