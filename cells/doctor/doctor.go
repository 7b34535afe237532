package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"porin.dev/porin/internal/task"
)

// examinationTimeout bounds a periodic examination.
const examinationTimeout = time.Minute

// Doctor examines, remembers what it found, and has it repaired. Its methods may be called concurrently.
type Doctor struct {
	cfg                   Config
	log                   *slog.Logger
	checkers              []Checker // by owner
	meters                *meters
	findings              *findings
	now                   func() time.Time
	examineSlot           chan struct{}        // holds one token while an examination runs
	repairSlot            chan struct{}        // holds one while a repair runs
	nextCostly            map[string]time.Time // when the periodic examination calls a costly checker again, by owner
	examinations, repairs *task.Task
}

// New makes a doctor that examines when it is asked, and periodically after Start. Every kind of a checker must have a
// name that no other has.
func New(cfg Config, log *slog.Logger, checkers ...Checker) (*Doctor, error) {
	checkers = slices.Clone(checkers)
	slices.SortStableFunc(checkers, func(a, b Checker) int { return cmp.Compare(a.Owner(), b.Owner()) })
	if err := errors.Join(cfg.Validate(), checkKinds(checkers)); err != nil {
		return nil, err
	}
	found := newFindings(cfg)
	d := &Doctor{
		cfg: cfg, log: log, checkers: checkers, findings: found, meters: newMeters(found, checkers), now: time.Now,
		examineSlot: make(chan struct{}, 1), repairSlot: make(chan struct{}, 1), nextCostly: map[string]time.Time{},
	}
	d.examinations = task.Every(log, task.Round{Name: "doctor-examine", Interval: cfg.Interval, Later: true, Run: d.examinePeriodically})
	d.repairs = task.Every(log, task.Round{Name: "doctor-repair", Run: func(ctx context.Context) error { d.repairDue(ctx); return nil }})
	return d, nil
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

// Start has the doctor examine at each interval, and repair, until Stop.
func (d *Doctor) Start() {
	d.examinations.Start(nil)
	d.repairs.Start(nil)
}

// Stop ends what Start began and waits for it, as long as ctx lasts. Without a Start it does nothing.
func (d *Doctor) Stop(ctx context.Context) error {
	return task.StopAll(ctx, d.examinations, d.repairs)
}

func (d *Doctor) examinePeriodically(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
	defer cancel()
	_, err := d.examine(ctx, Scope{}, d.isDue)
	d.repairs.Trigger()
	return err
}

// Events returns the findings of the last examination that the Kubernetes Node gets Events about.
func (d *Doctor) Events() (all []Finding) {
	d.findings.mu.Lock()
	defer d.findings.mu.Unlock()
	for _, owner := range slices.Sorted(maps.Keys(d.findings.events)) {
		all = append(all, d.findings.events[owner]...)
	}
	return all
}
