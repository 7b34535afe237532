package multipool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// waiter is somebody who waits for addresses of a pool.
type waiter struct {
	pool string
	want []netip.Addr // these very addresses; none is any
	done chan error   // has room for the one answer

	compare bool // instead of that: until the blocks were compared with the store
}

func (w *waiter) wants(f cluster.Family) bool {
	return slices.ContainsFunc(w.want, func(addr netip.Addr) bool { return cluster.FamilyOf(addr) == f })
}

// waiters are those that wait for the next round.
type waiters struct {
	mu      sync.Mutex // guards the fields below
	list    []*waiter
	refused error // nobody will answer
}

func (w *waiters) add(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != nil {
		one.done <- w.refused
		return
	}
	w.list = append(w.list, one)
}

// refuse answers all that come.
func (w *waiters) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = err
	for _, one := range w.list {
		one.done <- err
	}
	w.list = nil
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

// answer ends the wait. Another node that changed a record first is no conflict of who waits: the next round may succeed.
func (w *waiters) answer(one *waiter, err error) {
	w.remove(one)
	if errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrExists) {
		err = fault.Wrap(fault.Unavailable, err)
	}
	one.done <- err
}

// patience bounds how long somebody waits for a store that does not answer.
const patience = 3 * time.Second

// Refill has the node claim more of a pool: anything of each family that it has none of, or the blocks of the addresses that are
// wanted. It returns when it has, and else says why not.
func (c *Controller) Refill(ctx context.Context, pool string, want ...netip.Addr) error {
	return c.await(ctx, &waiter{pool: pool, want: want})
}

// Compare makes the node's blocks what the store says, now.
func (c *Controller) Compare(ctx context.Context) error { return c.await(ctx, &waiter{compare: true}) }

func (c *Controller) await(ctx context.Context, w *waiter) error {
	w.done = make(chan error, 1)
	c.waiters.add(w)
	defer c.waiters.remove(w)
	c.Kick()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fault.New(fault.Unavailable, fmt.Sprintf("the cluster's store did not answer in %s", patience)))
	defer cancel()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal says why a node with these labels gets no block of the pool, or nil.
func refusal(p cluster.Pool, labels map[string]string) error {
	switch {
	case p.Claimable(labels):
		return nil
	case p.Disabled:
		return fault.New(fault.Invalid, fmt.Sprintf("pool %s is disabled", p.Name))
	case p.State != cluster.PoolAccepted || p.Deleting:
		return fault.New(fault.Unavailable, fmt.Sprintf("pool %s is %s", p.Name, p.State))
	}
	var wanted []string
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		wanted = append(wanted, key+"="+p.NodeSelector[key])
	}
	return fault.New(fault.Invalid, fmt.Sprintf("pool %s is not for this node: it is for nodes with %s", p.Name, strings.Join(wanted, ",")))
}
