package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/policymap"
)

// Enforcer is the [policy.Enforcer]: it enforces the policies in the kernel. The programs at pods decide by the maps of
// policy. For egress policies two more parts are needed: package hostfilter for what pods send to the node itself, and
// the program on the uplinks for what leaves the node. These exist only while a pod has an egress policy.
type Enforcer struct {
	uplinks Uplinks
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	maps    policymap.Maps
	writer  *policymap.Writer // nil unless started; then filter is set, too
	filter  *hostfilter.Filter
	desired hostfilter.Desired // but for the uplinks
	applied bool               // desired is of the last call of Apply
}

var _ policy.Enforcer = (*Enforcer)(nil)

func newEnforcer(uplinks Uplinks, log *slog.Logger) *Enforcer {
	return &Enforcer{uplinks: uplinks, log: log}
}

func (x *Enforcer) start(maps policymap.Maps, filter *hostfilter.Filter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.maps, x.writer, x.filter = maps, policymap.New(maps), filter
}

// stop leaves everything in the kernel.
func (x *Enforcer) stop() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil
	}
	err := x.filter.Close()
	x.writer, x.filter, x.desired, x.applied = nil, nil, hostfilter.Desired{}, false
	return err
}

// Apply implements [policy.Enforcer]. The filter and the uplinks are set up before the maps restrict the first pod's
// egress, and removed after the maps restrict none.
func (x *Enforcer) Apply(e *engine.Engine, change *engine.Change, locals map[string]policy.Local) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return ErrNotStarted
	}
	desired, ids := desiredFilter(e, locals), idsOf(locals)
	if len(desired.Pods) == 0 { // the filter goes last
		if err := x.write(e, change, ids); err != nil {
			return err
		}
		x.desired, x.applied = desired, true
		return x.applyFilter()
	}
	x.desired, x.applied = desired, true
	if err := x.applyFilter(); err != nil {
		return err
	}
	return x.write(e, change, ids)
}

// write expects the lock.
func (x *Enforcer) write(e *engine.Engine, change *engine.Change, ids map[string]uint16) error {
	return noRoom(x.writer.Apply(e, change, ids))
}

func noRoom(err error) error {
	if errors.Is(err, policymap.ErrNoRoom) {
		return fmt.Errorf("%w: %w", policy.ErrNoRoom, err)
	}
	return err
}

// Fits implements [policy.Enforcer].
func (x *Enforcer) Fits(e *engine.Engine, locals map[string]policy.Local) error {
	x.mu.Lock()
	maps, started := x.maps, x.writer != nil
	x.mu.Unlock()
	if !started {
		return ErrNotStarted
	}
	return noRoom(maps.Fits(e, idsOf(locals)))
}

// RemoveEndpoint implements [policy.Enforcer].
func (x *Enforcer) RemoveEndpoint(id uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return ErrNotStarted
	}
	denied := x.writer.DeniesUnknown()
	if err := x.writer.RemoveEndpoint(id); err != nil {
		return err
	}
	if denied && !x.writer.DeniesUnknown() {
		return x.applyFilter()
	}
	return nil
}

// applyFilter expects the lock. The program is attached to the uplinks before the filter relies on it, and detached
// after that.
func (x *Enforcer) applyFilter() error {
	restricted := len(x.desired.Pods) > 0
	if restricted {
		if err := x.uplinks.Require(true); err != nil {
			return err
		}
	}
	d := x.desired
	if restricted {
		d.Enforced = slices.Concat(d.Enforced, x.uplinks.Attached())
		slices.Sort(d.Enforced)
	}
	if err := x.filter.Apply(d); err != nil {
		return err
	}
	if !restricted && !x.writer.DeniesUnknown() {
		return x.uplinks.Require(false)
	}
	return nil
}

// Verdict implements [policy.Enforcer].
func (x *Enforcer) Verdict(q policy.Question) (uint32, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return engine.ValueDeny, ErrNotStarted
	}
	return verdict(x.maps, q)
}

func verdict(maps policymap.Maps, q policy.Question) (uint32, error) {
	if q.Direction == model.Egress {
		return maps.Egress(q.Local.ID, q.Peer, q.Protocol, q.Port)
	}
	return maps.Ingress(q.Local.ID, q.Peer, q.FromNode, q.Protocol, q.Port)
}

// Layer7 implements [policy.Enforcer].
func (x *Enforcer) Layer7() (map[uint32]bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil, ErrNotStarted
	}
	return x.maps.Layer7()
}

// Compare implements [policy.Enforcer].
func (x *Enforcer) Compare(e *engine.Engine, locals map[string]policy.Local) (list []policy.Difference, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil, ErrNotStarted
	}
	found, err := x.writer.Compare(e, idsOf(locals))
	for _, d := range found {
		list = append(list, policy.Difference{Kind: d.Kind, Map: d.Map, Key: d.Key, Detail: d.Detail})
	}
	return list, err
}

func idsOf(locals map[string]policy.Local) map[string]uint16 {
	ids := make(map[string]uint16, len(locals))
	for key, local := range locals {
		ids[key] = local.ID
	}
	return ids
}

// Follow repairs the filter when another program has changed it, updates it when uplinks come and go, and removes from
// the maps what no program needs any more, until ctx ends or it fails.
func (x *Enforcer) Follow(ctx context.Context) error {
	x.mu.Lock()
	filter, writer := x.filter, x.writer
	x.mu.Unlock()
	if filter == nil {
		return ErrNotStarted
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return filter.Run(ctx) })
	group.Go(func() error {
		for err := errors.Join(x.clean(), x.repair()); ; { // of before an error
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-writer.Removable():
				err = x.clean()
			case <-x.uplinks.Changed():
				err = x.repair()
			}
		}
	})
	return group.Wait()
}

func (x *Enforcer) clean() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil
	}
	return x.writer.Clean()
}

func (x *Enforcer) repair() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.applied || x.filter == nil {
		return nil // the policies are not known yet
	}
	if err := x.applyFilter(); err != nil {
		return fmt.Errorf("update the table of nftables: %w", err)
	}
	return nil
}
