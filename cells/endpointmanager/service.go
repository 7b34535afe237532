package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
func New(p Params) Service {
	return &manager{
		cfg: p.Config, log: p.Log, table: p.Table, steps: p.Steps,
		subscribers: p.Subscribers, observers: p.Observers,
		ids: newIDs(), workers: map[Attachment]*worker{},
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

	mu      sync.Mutex // guards the fields below
	workers map[Attachment]*worker
	stopped bool
}

// Start implements [Service].
func (m *manager) Start(ctx context.Context) (err error) {
	if m.ledger, err = openLedger(m.cfg.ledgerPath()); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop(ctx))
		}
	}()
	if err := m.restore(ctx); err != nil {
		return err
	}
	m.workOff(ctx)
	loop, stop := context.WithCancel(context.Background())
	m.stopLoop = stop
	m.background.Go(func() { m.expireLoop(loop) })
	return nil
}

// Stop implements [Service].
func (m *manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	workers := make([]*worker, 0, len(m.workers))
	for _, w := range m.workers {
		workers = append(workers, w)
	}
	m.mu.Unlock()
	if m.ledger == nil {
		return nil // it never started
	}
	if m.stopLoop != nil {
		m.stopLoop()
	}
	for _, w := range workers {
		w.queue.close()
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for _, w := range workers {
			<-w.queue.done
		}
		m.background.Wait()
	}()
	select {
	case <-idle:
		return m.ledger.close()
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
		case now := <-tick.C:
			if err := m.ledger.expire(now.Add(-m.cfg.TombstoneTTL)); err != nil {
				m.log.Warn("old tombstones stay, next try at the next round", "error", err)
			}
		}
	}
}

// claim returns the worker of the attachment, and whether it was made just now.
func (m *manager) claim(spec Spec) (_ *worker, fresh bool, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, false, ErrStopped
	}
	if w, ok := m.workers[spec.Attachment]; ok {
		return w, false, nil
	}
	id, err := m.ids.allocate()
	if err != nil {
		return nil, false, err
	}
	w := newWorker(spec, id)
	m.workers[spec.Attachment] = w
	return w, true, nil
}

func (m *manager) worker(a Attachment) (*worker, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, ok := m.workers[a]
	return w, ok
}

// retire lets go of an endpoint of which nothing is left. Its number is free when its queue has drained, so no event
// of this life can meet the next endpoint of that number. It runs in the worker's queue.
func (m *manager) retire(w *worker) {
	m.mu.Lock()
	delete(m.workers, w.attachment)
	m.mu.Unlock()
	w.end()
	close(w.gone)
	w.queue.close()
	m.background.Go(func() {
		<-w.queue.done
		m.ids.free(w.ep.ID)
	})
}
