package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/task"
)

// Enforcer is the [policy.Enforcer]: it has the kernel decide as the policies say. The programs decide by their maps; what ends at the node itself is decided by a table
// of nftables, and what leaves it by the program on the uplinks. These two are there only while a pod has an egress policy.
type Enforcer struct {
	uplinks Uplinks
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	maps    policymap.Maps
	writer  *policymap.Writer // nil unless started
	filter  *hostfilter.Filter
	desired hostfilter.Desired // without the uplinks
	applied bool               // desired is what Apply was called with last
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

// stop leaves in the kernel what is there.
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

// Apply implements [policy.Enforcer]. What restricts comes first where pods get an egress policy, and goes last.
func (x *Enforcer) Apply(e *engine.Engine, change *engine.Change, locals map[string]policy.Local) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return ErrNotStarted
	}
	desired, numbers := desiredFilter(e, locals), numbersOf(locals)
	if len(desired.Pods) == 0 { // until the maps say so, too, nothing is taken away
		if err := x.writer.Apply(e, change, numbers); err != nil {
			return err
		}
		x.desired, x.applied = desired, true
		return x.applyFilter()
	}
	x.desired, x.applied = desired, true
	if err := x.applyFilter(); err != nil {
		return err
	}
	return x.writer.Apply(e, change, numbers)
}

// Forget implements [policy.Enforcer].
func (x *Enforcer) Forget(number uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return ErrNotStarted
	}
	denied := x.writer.DeniesUnknown()
	if err := x.writer.Forget(number); err != nil {
		return err
	}
	if denied && !x.writer.DeniesUnknown() {
		return x.applyFilter()
	}
	return nil
}

// applyFilter expects the lock. The program is on the uplinks as long as the filter relies on it.
func (x *Enforcer) applyFilter() error {
	restricted := len(x.desired.Pods) > 0
	if restricted {
		if err := x.uplinks.Require(true); err != nil {
			return err
		}
	}
	d := x.desired
	if restricted {
		d.Decided = slices.Concat(d.Decided, x.uplinks.Decided())
		slices.Sort(d.Decided)
	}
	if err := x.filter.Apply(d); err != nil {
		return err
	}
	if !restricted && !x.writer.DeniesUnknown() {
		return x.uplinks.Require(false)
	}
	return nil
}

// Allows implements [policy.Enforcer].
func (x *Enforcer) Allows(q policy.Question) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return false, ErrNotStarted
	}
	if q.Direction == model.Egress {
		return x.maps.EgressAllows(q.Local.Number, q.Peer, q.Protocol, q.Port)
	}
	return x.maps.IngressAllows(q.Local.Number, q.Peer, q.SentHere, q.Protocol, q.Port)
}

// Compare implements [policy.Enforcer].
func (x *Enforcer) Compare(e *engine.Engine, locals map[string]policy.Local) (list []policy.Difference, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == nil {
		return nil, ErrNotStarted
	}
	found, err := x.writer.Compare(e, numbersOf(locals))
	for _, d := range found {
		list = append(list, policy.Difference{Kind: d.Kind, Map: d.Map, Key: d.Key, Detail: d.Detail})
	}
	return list, err
}

func numbersOf(locals map[string]policy.Local) map[string]uint16 {
	numbers := make(map[string]uint16, len(locals))
	for id, local := range locals {
		numbers[id] = local.Number
	}
	return numbers
}

// Follow repairs the filter when somebody else has changed it, brings it up to date when uplinks come and go, and removes from the maps what no program needs any more, until
// ctx ends.
func (x *Enforcer) Follow(ctx context.Context) error {
	x.mu.Lock()
	filter, writer := x.filter, x.writer
	x.mu.Unlock()
	if filter == nil {
		return ErrNotStarted
	}
	if err := x.clean(); err != nil { // of before an error
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	changes, err := filter.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for range changes { // to its end
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-writer.Removable():
			if err := x.clean(); err != nil {
				return err
			}
			continue
		case <-x.uplinks.Changed():
		case _, open := <-changes:
			if !open && ctx.Err() == nil {
				return errors.New("the kernel has dropped notifications of nftables")
			}
		}
		if err := x.repair(); err != nil {
			return fmt.Errorf("bring the filter of nftables up to date: %w", err)
		}
	}
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
		return nil // nobody has said yet what is to be there
	}
	return x.applyFilter()
}

func newFilterTask(x *Enforcer, log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "datapath-follow-nftables", Run: x.Follow, Retry: uplinksPause, MaxRetry: uplinksInterval})
}

// desiredFilter is what the filter is for, but for the uplinks.
func desiredFilter(e *engine.Engine, locals map[string]policy.Local) (d hostfilter.Desired) {
	rows := map[engine.TableID][]hostfilter.Row{}
	hosts := e.HostClasses()
	for id, local := range locals {
		if local.Link == 0 {
			continue // it has no host end yet, or none of ours
		}
		d.Decided = append(d.Decided, local.Link)
		table, ok := e.Table(id, model.Egress)
		if !ok || !table.Restricts() {
			continue
		}
		if _, known := rows[table.ID()]; !known {
			rows[table.ID()] = hostRows(table, hosts)
		}
		d.Pods = append(d.Pods, hostfilter.Pod{Link: local.Link, Rows: rows[table.ID()]})
	}
	slices.Sort(d.Decided)
	slices.SortFunc(d.Pods, func(x, y hostfilter.Pod) int { return x.Link - y.Link })
	return d
}

// hostRows are a table's rows for the node. Where a policy tells its addresses apart, all of them have to be allowed.
func hostRows(table engine.Table, hosts []engine.ClassID) (list []hostfilter.Row) {
	var sets [][]engine.Row
	for _, class := range hosts {
		sets = append(sets, table.RowsOf(class))
	}
	allows := func(protocol model.Protocol, port uint16) bool {
		return !slices.ContainsFunc(sets, func(rows []engine.Row) bool {
			outcome, ok := engine.Lookup(rows, protocol, port)
			return !ok || !outcome.Allowed
		})
	}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		starts := spanStarts(sets, protocol)
		for i := 0; i < len(starts); {
			first := starts[i]
			allow := allows(protocol, first)
			for i++; i < len(starts) && allows(protocol, starts[i]) == allow; i++ {
			}
			last := uint16(65535)
			if i < len(starts) {
				last = starts[i] - 1
			}
			list = append(list, hostfilter.Row{Protocol: uint8(protocol), First: first, Last: last, Allow: allow})
		}
	}
	return append(list, hostfilter.Row{Last: 65535, Allow: allows(model.ICMP, 0)}) // as all protocols without ports
}

// spanStarts returns the ports at which a verdict may change, 0 first.
func spanStarts(sets [][]engine.Row, protocol model.Protocol) []uint16 {
	starts := []uint16{0}
	for _, rows := range sets {
		for _, r := range rows {
			if r.Protocol != protocol || r.Bits == 0 {
				continue
			}
			starts = append(starts, r.Port)
			if end := r.Port | 0xffff>>r.Bits; end < 65535 {
				starts = append(starts, end+1)
			}
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts)
}
