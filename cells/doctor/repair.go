package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Bounds of a repair, and of the pause after one that did not help.
const (
	repairTimeout = 30 * time.Second
	maxPause      = 5 * time.Minute
)

// repaired is the outcome of a repair that succeeded.
const repaired = "repaired"

// repairDue runs the repairs that are due.
func (d *Doctor) repairDue(ctx context.Context) {
	_ = d.repair(ctx, func(r *record) bool { return r.due }) // the end of the loop
}

// repair runs the chosen repairs, one after the other. The only error is that ctx ended.
func (d *Doctor) repair(ctx context.Context, chosen func(*record) bool) error {
	select {
	case d.hands <- struct{}{}:
		defer func() { <-d.hands }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the repair that runs: %w", ctx.Err())
	}
	for _, r := range d.chart.take(chosen) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := attempt(ctx, r.repair)
		d.report(d.chart.conclude(r.record, err, d.now()), err)
	}
	return nil
}

func (d *Doctor) report(f v1.Finding, err error) {
	log := d.log.With("kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint)
	if err != nil {
		d.meters.repairs.WithLabelValues(f.Kind, "failed").Inc()
		log.Warn("could not repair, next try when it is found again", "error", err)
		return
	}
	d.meters.repairs.WithLabelValues(f.Kind, repaired).Inc()
	log.Info("repaired", "reason", f.Detail)
}

// attempt runs a repair that may panic.
func attempt(ctx context.Context, repair func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return repair(ctx)
}

// dueRepair is a record and its repair as of the look that made it due: a later look may replace it.
type dueRepair struct {
	record *record
	repair func(context.Context) error
}

// take returns what is chosen, in the order in which it was found. It is due again when another look has found it.
func (c *chart) take(chosen func(*record) bool) (due []dueRepair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if chosen(r) {
			r.due = false
			due = append(due, dueRepair{r, r.repair})
		}
	}
	slices.SortFunc(due, func(a, b dueRepair) int {
		if order := a.record.Since.Compare(b.record.Since); order != 0 {
			return order
		}
		return byName(a.record.Finding, b.record.Finding)
	})
	return due
}

// conclude writes down how a repair ended. One that succeeded and did not help counts as one that failed.
func (c *chart) conclude(r *record, err error, now time.Time) v1.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Outcome = repaired
	if err != nil {
		r.Outcome = err.Error()
	}
	r.acted = now
	r.next = now.Add(min(c.pause<<min(r.tries, 16), maxPause))
	r.tries++
	return r.Finding
}
