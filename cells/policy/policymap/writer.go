package policymap

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// Writer alone writes the maps. One goroutine may use it at a time.
type Writer struct {
	maps      Maps
	current   *policyCopy     // the active one, if this agent has written it; else nil
	stale     bool            // the copy that is not active has entries
	unknown   map[uint16]bool // of the last copy that became active; nil before the first one
	pending   pending
	removable chan struct{} // with room for one
}

// New returns a writer. What previous agents wrote stays in force until the first [Writer.Apply].
func New(m Maps) *Writer { return &Writer{maps: m, stale: true, removable: make(chan struct{}, 1)} }

// Removable is sent to when there is something that [Writer.Clean] can remove.
func (w *Writer) Removable() <-chan struct{} { return w.removable }

// Clean removes what nothing points to any more, as far as no program can need it.
func (w *Writer) Clean() (err error) {
	if w.pending, err = w.pending.run(); err != nil {
		return err
	}
	w.removeLater() // rows that the removals have released
	return nil
}

// Apply makes the maps say what the engine says after a change; nil stands for everything. ids has the ID of each local
// endpoint by its key. The first call, and the one after an error, writes everything. After an error the last policy
// stays in force, or for some packets the new one.
func (w *Writer) Apply(e *engine.Engine, change *engine.Change, ids map[string]uint16) error {
	if err := w.Clean(); err != nil {
		return err
	}
	if w.current == nil || change == nil {
		return w.rewrite(e, ids)
	}
	err := w.update(e, *change, ids)
	if errors.Is(err, errNotInPlace) {
		return w.rewrite(e, ids)
	}
	if err != nil {
		w.current = nil
	}
	return err
}

// rewrite writes a whole copy, and makes it active.
func (w *Writer) rewrite(e *engine.Engine, ids map[string]uint16) error {
	w.current = nil
	active, err := w.maps.activeCopy()
	if err != nil {
		return err
	}
	next := newPolicyCopy(w.maps, (active+1)%abi.PolicyCopies)
	w.pending = nil
	w.stale = true
	if err := clearCopy(w.maps, next.number); err != nil { // also rows that another program has written
		return err
	}
	if err := next.write(e, ids); err != nil {
		return err
	}
	restricted, err := next.endpoints.denyUnknown(w.unknown, e.AllowsHost())
	if err != nil {
		return err
	}
	if err := w.maps.ActiveCopy.Put(uint32(0), next.number); err != nil {
		return fmt.Errorf("activate a copy of the policy: %w", err)
	}
	for id, p := range restricted { // the programs decide all connections of these pods again
		p.Revision++
		if err := w.maps.writePolicy(id, p); err != nil {
			return err
		}
	}
	w.current, w.unknown = next, next.endpoints.unknown
	w.removeLater(func() error {
		if err := clearCopy(w.maps, active); err != nil {
			return err
		}
		w.stale = false
		return nil
	})
	return nil
}

// DeniesUnknown reports whether the maps restrict endpoints that Apply was not told of, and a previous agent was.
func (w *Writer) DeniesUnknown() bool {
	return w.current != nil && len(w.current.endpoints.unknown) > 0
}

// RemoveEndpoint removes the policy of an ID that a previous agent has restricted, and whose endpoint is gone. An ID of
// the last Apply stays as it is.
func (w *Writer) RemoveEndpoint(id uint16) error {
	if w.current != nil && !w.unknown[id] {
		return nil
	}
	if p, err := w.maps.readPolicy(id); err != nil || !restricts(p) {
		return err
	}
	if err := w.maps.removePolicy(id); err != nil {
		return err
	}
	delete(w.unknown, id)
	return nil
}

// removeLater has these run, and then the rows removed that nothing points to.
func (w *Writer) removeLater(list ...func() error) {
	if w.current != nil && len(w.current.rowSets.unused) > 0 {
		list = append(list, w.current.rowSets.takeUnused())
	}
	if len(list) == 0 {
		return
	}
	r := &removals{list: list}
	r.whenSafe(w.removable)
	w.pending = append(w.pending, r)
}

func viewsOf(e *engine.Engine, ids map[string]uint16) map[engine.TableID]engine.Table {
	views := map[engine.TableID]engine.Table{}
	for key := range ids {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if t, ok := e.Table(key, d); ok {
				views[t.ID()] = t
			}
		}
	}
	return views
}

// removals are entries to which nothing points any more. A program that has read the pointer before may be about to
// need them.
type removals struct {
	list []func() error
	safe atomic.Bool // no program has a pointer from before
}

// membarrierGlobal returns when every program that ran at the call has ended (membarrier(2), MEMBARRIER_CMD_GLOBAL).
const membarrierGlobal = 1

// longRun is longer than any program runs, for a kernel that refuses the call, as one with nohz_full does.
const longRun = time.Second

// whenSafe finds out when the entries may be removed, and tells.
func (r *removals) whenSafe(tell chan<- struct{}) {
	go func() {
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
			time.Sleep(longRun)
		}
		r.safe.Store(true)
		select {
		case tell <- struct{}{}:
		default:
		}
	}()
}

// pending are removals in the order in which they were asked for.
type pending []*removals

// run removes entries that are certainly unused, and returns the rest.
func (p pending) run() (left pending, err error) {
	for i, r := range p {
		if !r.safe.Load() {
			return p[i:], nil
		}
		for _, remove := range r.list {
			if err := remove(); err != nil {
				return p[i:], err
			}
		}
	}
	return nil, nil
}
