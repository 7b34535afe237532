package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/task"
)

// Examine examines now, and returns what it found and what is known. It fails only when ctx ends while another
// examination runs.
func (d *Doctor) Examine(ctx context.Context, s Scope) (v1.Doctor, error) {
	answer, err := d.examine(ctx, s, always)
	if err == nil && s.Endpoint == "" {
		d.repairs.Trigger()
	}
	return answer, err
}

func always(Checker) bool { return true }

// isDue reports whether the periodic examination calls a checker. The first call of a costly one is at a random time,
// as many agents may have started together.
func (d *Doctor) isDue(checker Checker) bool {
	costly, ok := checker.(Costly)
	if !ok {
		return true
	}
	now, every := d.now(), costly.Every()
	next, known := d.nextCostly[checker.Owner()]
	if !known {
		next = now.Add(rand.N(every))
	}
	due := !now.Before(next)
	if due {
		next = now.Add(every)
	}
	d.nextCostly[checker.Owner()] = next
	return due
}

// examine runs the checkers that are in the scope, and due.
func (d *Doctor) examine(ctx context.Context, s Scope, due func(Checker) bool) (v1.Doctor, error) {
	select {
	case d.examineSlot <- struct{}{}:
		defer func() { <-d.examineSlot }()
	case <-ctx.Done():
		return v1.Doctor{}, fmt.Errorf("wait for the examination that runs: %w", ctx.Err())
	}
	began := d.now()
	answer := v1.Doctor{Examined: began, Findings: []v1.Finding{}}
	for _, checker := range d.checkers {
		if s.includes(checker) && due(checker) {
			d.check(ctx, checker, s, &answer)
		}
	}
	answer.Duration = d.now().Sub(began)
	d.meters.duration.Observe(answer.Duration.Seconds())
	return answer, nil
}

// check adds to the answer what one checker finds.
func (d *Doctor) check(ctx context.Context, checker Checker, s Scope, answer *v1.Doctor) {
	found, err := confirmed(ctx, checker, s.Endpoint)
	if err != nil {
		answer.Errors = append(answer.Errors, checker.Owner()+": "+err.Error())
	}
	result := newCheckResult(checker, found, err)
	if s.Endpoint != "" {
		answer.Findings = append(answer.Findings, s.filter(result, d.findings.describe(result, result.found, answer.Examined))...)
		return
	}
	d.logChange(ctx, d.findings.update(result, answer.Examined))
	answer.Findings = append(answer.Findings, s.filter(result, d.findings.list(func(r *record) bool { return r.Owner == result.owner }))...)
	answer.Notes = append(answer.Notes, s.filter(result, d.findings.describe(result, result.notes, answer.Examined))...)
}

// confirmDelay is how long what the plugin makes before it calls the agent may look like a disagreement.
const confirmDelay = 100 * time.Millisecond

// confirmed returns the findings that a checker still has when it is run again a moment later.
func confirmed(ctx context.Context, checker Checker, only string) ([]Finding, error) {
	first, err := run(ctx, checker, only)
	if err != nil || len(first) == 0 {
		return first, err
	}
	if err := task.Sleep(ctx, confirmDelay); err != nil {
		return nil, err
	}
	second, err := run(ctx, checker, only)
	return slices.DeleteFunc(second, func(f Finding) bool {
		return !slices.ContainsFunc(first, func(was Finding) bool { return was.Kind == f.Kind && was.Subject == f.Subject })
	}), err
}

// run runs a checker once. A panic of the checker is its failure.
func run(ctx context.Context, checker Checker, only string) (found []Finding, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("examine: panic: %v", fault)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return checker.Examine(ctx, only)
}

// logChange does not log the failure of an examination that its caller ended: the caller gets that error.
func (d *Doctor) logChange(ctx context.Context, c change) {
	for _, f := range c.added {
		d.log.Warn("found a disagreement", "kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint, "reason", f.Detail)
	}
	for _, f := range c.gone {
		d.log.Info("disagreement is gone", "kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint, "outcome", f.Outcome)
	}
	if c.failed != nil && ctx.Err() == nil {
		d.log.Warn("checker failed, next try at the next examination", "owner", c.owner, "error", c.failed)
	}
}

// Scope restricts an examination. The zero one is all.
type Scope struct {
	// Endpoint is an attachment (containerID:ifname), for what is about it alone: then the examination does not count as
	// one of the two that a repair takes.
	Endpoint string
	// About is one of the [Kind].About. Such an examination counts.
	About string
}

// includes reports whether a checker may find something of the scope.
func (s Scope) includes(checker Checker) bool {
	return s.About == "" || slices.ContainsFunc(checker.Kinds(), func(k Kind) bool { return k.About == s.About })
}

// filter returns a checker's findings of the scope.
func (s Scope) filter(result checkResult, list []v1.Finding) []v1.Finding {
	return slices.DeleteFunc(list, func(f v1.Finding) bool { return s.About != "" && result.kinds[f.Kind].About != s.About })
}

// repairable reports whether a record is of the scope, and has a repair.
func (s Scope) repairable(r *record) bool {
	return r.repair != nil && (s.About == "" || r.about == s.About)
}

// scopes returns what a [Scope] can be restricted to.
func (d *Doctor) scopes() (all []string) {
	for _, checker := range d.checkers {
		for _, kind := range checker.Kinds() {
			if kind.About != "" && !slices.Contains(all, kind.About) {
				all = append(all, kind.About)
			}
		}
	}
	slices.Sort(all)
	return all
}

// checkResult is what one checker has found.
type checkResult struct {
	owner string
	kinds map[string]Kind
	found []Finding
	notes []Finding // of kinds that are no disagreements
	err   error
}

func newCheckResult(checker Checker, found []Finding, err error) checkResult {
	result := checkResult{owner: checker.Owner(), kinds: map[string]Kind{}, err: err}
	for _, kind := range checker.Kinds() {
		result.kinds[kind.Name] = kind
	}
	for _, f := range found {
		if result.kinds[f.Kind].Note {
			result.notes = append(result.notes, f)
		} else {
			result.found = append(result.found, f)
		}
	}
	return result
}
