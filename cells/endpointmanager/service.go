package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/internal/boottime"
)

// Params is what a manager is made of. Config, Log and Table are needed.
type Params struct {
	fx.In

	Config      Config
	Log         *slog.Logger
	Table       *Table
	Steps       Steps
	Subscribers []Subscriber `group:"endpoint.subscribers"`
	Observers   []Observer   `group:"endpoint.observers"`
}

// New returns a manager that has not started.
func New(p Params) Service { return build(p) }

func build(p Params) *manager {
	return &manager{
		here: originHere, held: newHold(),
		cfg: p.Config, log: p.Log, table: p.Table, steps: p.Steps,
		subscribers: p.Subscribers, observers: p.Observers,
		boot: boottime.Now, open: func(path string) (ledger, error) { return openLedgerFile(path) },
		admissions: newAdmissions(p.Config.Parallel),
		turn:       func(string, Attachment) {},
		ids:        newIDs(), roster: newRoster(), history: newHistory(), coming: map[Attachment]int{}, stopped: true,
	}
}

type manager struct {
	cfg         Config
	log         *slog.Logger
	table       *Table
	steps       Steps
	subscribers []Subscriber
	observers   []Observer
	ids         *ids
	boot        func() time.Duration // CLOCK_BOOTTIME
	open        func(path string) (ledger, error)
	turn        func(what string, a Attachment) // called where goroutines may overtake each other: a simulation orders them by it
	here        func() (origin, error)
	ledger      ledger // nil until Start
	held        *hold
	admissions  *admissions
	gc          collector
	report      Report
	background  sync.WaitGroup
	loop        context.Context // ends with Stop; nil until Start
	stopLoop    context.CancelFunc

	mu        sync.Mutex // guards the fields below
	roster    roster
	history   history
	coming    map[Attachment]int // creations under way
	stopped   bool               // or not started yet
	closed    bool               // stopped, and no worker may begin
	suspended *suspension        // nil unless the ledger is of another network namespace
}

// Start implements [Service].
func (m *manager) Start(ctx context.Context) (err error) {
	if err := m.cfg.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	opened, err := m.open(m.cfg.ledgerPath())
	if err != nil {
		return err
	}
	m.ledger = opened
	defer func() {
		if err != nil { // perhaps because ctx has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, m.Stop(ctx))
		}
	}()
	if err := m.restore(ctx); err != nil {
		return err
	}
	m.loop, m.stopLoop = context.WithCancel(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = false
	if m.suspended == nil {
		m.startLoops()
	}
	return nil
}

// startLoops expects the lock, and that the manager is not stopped.
func (m *manager) startLoops() {
	m.background.Go(func() { m.expireLoop(m.loop) })
	m.background.Go(func() { m.recordsLoop(m.loop) })
}

// Stop implements [Service].
func (m *manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped, m.closed = true, true
	for _, w := range m.roster.each() {
		w.queue.close()
	}
	m.mu.Unlock()
	if m.ledger == nil {
		return nil // it never started
	}
	if m.stopLoop != nil {
		m.stopLoop()
	}
	closed := make(chan error, 1)
	go func() {
		m.background.Wait()
		closed <- m.ledger.close()
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for endpoints: %w", ctx.Err())
	}
}

// expireLoop forgets old tombstones.
func (m *manager) expireLoop(ctx context.Context) {
	tick := time.NewTicker(max(m.cfg.TombstoneTTL/10, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.forget(m.boot() - m.cfg.TombstoneTTL)
		}
	}
}

func (m *manager) isStopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
}

// refusal is why nothing is changed now, which wraps [ErrStopped]; or nil.
func (m *manager) refusal() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusalLocked()
}

func (m *manager) refusalLocked() error {
	switch {
	case m.stopped:
		return ErrStopped
	case m.suspended != nil:
		return ErrSuspended
	}
	return nil
}

// forget drops what is known of deletions that began before the given time.
func (m *manager) forget(before time.Duration) {
	m.mu.Lock()
	m.history.forget(before, func(pod podInterface) bool { return len(m.roster.byPod[pod]) > 0 })
	m.mu.Unlock()
	if err := m.ledger.expire(before, math.MaxInt64); err != nil {
		m.log.Warn("old tombstones stay, next try at the next round", "error", err)
	}
}

// claim returns the worker of the attachment, or those that spec supersedes, or makes one. The first event of a fresh one
// is first: a deletion that sees the worker comes after it.
func (m *manager) claim(spec Spec, first func(*worker)) (w *worker, elders []*worker, fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return nil, nil, false, err
	}
	if err := m.history.refuse(spec); err != nil {
		return nil, nil, false, err
	}
	m.history.noteBirth(spec)
	if elders := m.roster.elders(spec); len(elders) > 0 {
		return nil, elders, false, nil
	}
	if w, ok := m.roster.byAttachment[spec.Attachment]; ok {
		if began := w.beganAt(); spec.Began < began {
			return nil, nil, false, fmt.Errorf("%w: another ADD of it began %s later", ErrSuperseded, began-spec.Began)
		}
		return w, nil, false, nil
	}
	id, err := m.ids.allocate()
	if err != nil {
		return nil, nil, false, err
	}
	w = newWorker(spec, id)
	w.queue.push(func() { first(w) })
	m.launch(w)
	return w, nil, true, nil
}

// launch runs the worker's events until its queue is closed and drained. Its number is free only then, so no event of
// this life can meet the next endpoint of that number. It expects the lock.
func (m *manager) launch(w *worker) {
	m.roster.add(w)
	m.background.Go(func() {
		w.queue.run()
		if w.retry != nil {
			w.retry.Stop()
		}
		if w.isGone() {
			m.ids.free(w.ep.ID)
		}
	})
}

// retire lets go of an endpoint of which nothing is left. It runs in the worker's queue.
func (m *manager) retire(w *worker) {
	m.mu.Lock()
	m.roster.drop(w)
	m.mu.Unlock()
	w.end()
	close(w.gone)
	w.queue.close()
}
