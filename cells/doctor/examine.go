package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Doctor examines, keeps in mind what it found, and has it repaired. Its methods may be called concurrently.
type Doctor struct {
	cfg      Config
	log      *slog.Logger
	checkers []Checker
	meters   *meters
	chart    *chart
	now      func() time.Time
	turn     chan struct{}        // holds one token while an examination runs
	hands    chan struct{}        // holds one while a repair runs
	next     map[string]time.Time // the loop's: when a costly checker looks again, by owner
	loop     loop
}

// New makes a doctor that examines when it is asked, and on its own after Start. Every kind of a checker must have a
// name that no other has.
func New(cfg Config, log *slog.Logger, checkers ...Checker) (*Doctor, error) {
	checkers = slices.Clone(checkers)
	slices.SortStableFunc(checkers, func(a, b Checker) int { return cmp.Compare(a.Owner(), b.Owner()) })
	if err := errors.Join(cfg.Validate(), checkKinds(checkers)); err != nil {
		return nil, err
	}
	c := newChart(cfg)
	return &Doctor{
		cfg: cfg, log: log, checkers: checkers, chart: c, meters: newMeters(c, checkers), now: time.Now,
		turn: make(chan struct{}, 1), hands: make(chan struct{}, 1), next: map[string]time.Time{}, loop: newLoop(),
	}, nil
}

func checkKinds(checkers []Checker) error {
	var faults []error
	owners := map[string]string{}
	for _, checker := range checkers {
		for _, kind := range checker.Kinds() {
			if first, taken := owners[kind.Name]; taken || kind.Name == "" {
				faults = append(faults, fmt.Errorf("kind %q of %s: want a name that %q has not taken", kind.Name, checker.Owner(), first))
			}
			owners[kind.Name] = checker.Owner()
		}
	}
	return errors.Join(faults...)
}

// Examine looks now, and tells what it found and what is known. The only error is that ctx ended before it was this look's
// turn.
func (d *Doctor) Examine(ctx context.Context, s Scope) (v1.Doctor, error) {
	answer, err := d.examine(ctx, s, always)
	if err == nil && s.Endpoint == "" {
		d.loop.kick()
	}
	return answer, err
}

func always(Checker) bool { return true }

// examine has those of the checkers look that are in the scope, and due.
func (d *Doctor) examine(ctx context.Context, s Scope, due func(Checker) bool) (v1.Doctor, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return v1.Doctor{}, fmt.Errorf("wait for the examination that runs: %w", ctx.Err())
	}
	began := d.now()
	answer := v1.Doctor{Examined: began, Findings: []v1.Finding{}}
	for _, checker := range d.checkers {
		if s.has(checker) && due(checker) {
			d.ask(ctx, checker, s, &answer)
		}
	}
	answer.Duration = d.now().Sub(began)
	d.meters.duration.Observe(answer.Duration.Seconds())
	return answer, nil
}

// ask adds to the answer what one checker says.
func (d *Doctor) ask(ctx context.Context, checker Checker, s Scope, answer *v1.Doctor) {
	found, err := examine(ctx, checker, s.Endpoint)
	if err != nil {
		answer.Errors = append(answer.Errors, checker.Owner()+": "+err.Error())
	}
	o := newOpinion(checker, found, err)
	if s.Endpoint != "" {
		answer.Findings = append(answer.Findings, s.of(o, d.chart.compare(o, o.found, answer.Examined))...)
	} else {
		d.tell(ctx, d.chart.note(o, answer.Examined))
		answer.Findings = append(answer.Findings, s.of(o, d.chart.known(o.owner))...)
		answer.Compared = append(answer.Compared, compared(checker, err)...)
	}
	if s.Endpoint == "" {
		answer.Notes = append(answer.Notes, s.of(o, d.chart.compare(o, o.notes, answer.Examined))...)
	}
}

// moment is how long what the plugin makes before it calls the agent may look like a disagreement.
const moment = 100 * time.Millisecond

// examine is one checker's look, and another a moment later at what it has found: only what both find is one.
func examine(ctx context.Context, checker Checker, only string) ([]Finding, error) {
	first, err := look(ctx, checker, only)
	if err != nil || len(first) == 0 {
		return first, err
	}
	select {
	case <-time.After(moment):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, err := look(ctx, checker, only)
	return slices.DeleteFunc(second, func(f Finding) bool {
		return !slices.ContainsFunc(first, func(was Finding) bool { return was.Kind == f.Kind && was.Subject == f.Subject })
	}), err
}

// look is a single one. A panic of the checker is its failure.
func look(ctx context.Context, checker Checker, only string) (found []Finding, err error) {
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

// tell logs what a look has changed. That one was cut short is for its caller to hear.
func (d *Doctor) tell(ctx context.Context, change change) {
	for _, f := range change.fresh {
		d.log.Warn("found a disagreement", "kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint, "reason", f.Detail)
	}
	for _, f := range change.gone {
		d.log.Info("disagreement is gone", "kind", f.Kind, "owner", f.Owner, "subject", f.Subject, "endpoint", f.Endpoint, "outcome", f.Outcome)
	}
	if change.failed != nil && ctx.Err() == nil {
		d.log.Warn("could not be examined, next try at the next look", "owner", change.owner, "error", change.failed)
	}
}
