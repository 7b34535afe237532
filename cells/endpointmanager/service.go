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
		cfg: p.Config, log: p.Log, table: p.Table, steps: p.Steps,
		subscribers: p.Subscribers, observers: p.Observers,
		ids: newIDs(), workers: map[Attachment]*worker{}, deletedAt: map[Attachment]time.Duration{}, stopped: true,
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
	ledger      *ledger
	report      Report
	background  sync.WaitGroup
	stopLoop    context.CancelFunc

	mu        sync.Mutex // guards the fields below
	workers   map[Attachment]*worker
	deletedAt map[Attachment]time.Duration // see late.go
	stopped   bool                         // or not started yet
}

// Start implements [Service].
func (m *manager) Start(ctx context.Context) (err error) {
	if err := m.cfg.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if m.ledger, err = openLedger(m.cfg.ledgerPath()); err != nil {
		return err
	}
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
	loop, stop := context.WithCancel(context.Background())
	m.stopLoop = stop
	m.background.Go(func() { m.expireLoop(loop) })
	m.mu.Lock()
	m.stopped = false
	m.mu.Unlock()
	return nil
}

// Stop implements [Service].
func (m *manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	for _, w := range m.workers {
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
			m.forgetDeletions(bootTime() - m.cfg.TombstoneTTL)
			if err := m.ledger.expire(bootTime()-m.cfg.TombstoneTTL, math.MaxInt64); err != nil {
				m.log.Warn("old tombstones stay, next try at the next round", "error", err)
			}
		}
	}
}

// claim returns the worker of the attachment, or makes one. The first event of a fresh one is first: a deletion that
// sees the worker comes after it.
func (m *manager) claim(spec Spec, first func(*worker)) (_ *worker, fresh bool, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, false, ErrStopped
	}
	if err := m.refuseLate(spec); err != nil {
		return nil, false, err
	}
	if w, ok := m.workers[spec.Attachment]; ok {
		return w, false, nil
	}
	id, err := m.ids.allocate()
	if err != nil {
		return nil, false, err
	}
	w := newWorker(spec, id)
	w.queue.push(func() { first(w) })
	m.launch(w)
	return w, true, nil
}

// launch runs the worker's events until its queue is closed and drained. Its number is free only then, so no event of
// this life can meet the next endpoint of that number. It expects the lock.
func (m *manager) launch(w *worker) {
	m.workers[w.attachment] = w
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
	delete(m.workers, w.attachment)
	m.mu.Unlock()
	w.end()
	close(w.gone)
	w.queue.close()
}
