package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// waiter is a call that waits for the next round, for addresses of a pool.
type waiter struct {
	pool string
	want []netip.Addr // the wanted addresses; empty for any
	done chan error   // has room for the one answer

	reconcile bool // it waits until the blocks were reconciled, and for no address
	recovery  bool // it asks for a recovery
}

// wants reports whether the waiter wants certain addresses of the family.
func (w *waiter) wants(f cluster.Family) bool {
	return slices.ContainsFunc(w.want, func(addr netip.Addr) bool { return cluster.FamilyOf(addr) == f })
}

// waiters are the calls that wait for the next round. It is safe for concurrent use.
type waiters struct {
	kicked chan struct{} // holds a token while there may be something to do

	mu      sync.Mutex // guards the fields below
	list    []*waiter
	refused error // why no round will answer; nil: it will
}

// wake makes a round begin soon.
func (w *waiters) wake() { task.Wake(w.kicked) }

// refuse answers all waiters with the error, now and later.
func (w *waiters) refuse(err error) {
	w.mu.Lock()
	w.refused = err
	w.mu.Unlock()
	w.answer(err, w.all()...)
}

// refusal returns the error of refuse, or nil.
func (w *waiters) refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *waiters) all() []*waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func (w *waiters) remove(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = slices.DeleteFunc(w.list, func(other *waiter) bool { return other == one })
}

// answer ends waits. When another node changed a record first, that is no conflict for the waiter: the next round may
// succeed.
func (w *waiters) answer(err error, waiting ...*waiter) {
	if errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrExists) {
		err = fault.Wrap(fault.Unavailable, err)
	}
	for _, one := range waiting {
		w.remove(one)
		one.done <- err
	}
}

// patience bounds how long a call waits for a store that does not answer.
const patience = 3 * time.Second

const hintStore = "find out why the store does not answer: see porin doctor"

// errNoAnswer is returned when no round has answered in time.
var errNoAnswer = fault.New(fault.Unavailable, "the cluster's store did not answer in time")

// await makes a round begin, and returns its answer.
func (w *waiters) await(ctx context.Context, one *waiter, patience time.Duration) error {
	one.done = make(chan error, 1)
	w.mu.Lock()
	refused := w.refused
	w.list = append(w.list, one)
	w.mu.Unlock()
	defer w.remove(one)
	if refused != nil {
		return refused
	}
	w.wake()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fault.WithHint(fmt.Errorf("%w: %s", errNoAnswer, patience), hintStore))
	defer cancel()
	select {
	case err := <-one.done:
		if errors.Is(err, cluster.ErrUnavailable) {
			err = fault.WithHint(err, hintStore)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
