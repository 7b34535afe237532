package endpointmanager

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"porin.dev/porin/cells/endpoint"
)

// Table is the endpoints of the node in memory, with an index for each kind of [endpoint.Ref]. Only the manager of its
// package writes it; all cells read it, as a [Lookup].
type Table struct {
	mu    sync.RWMutex // guards the fields below
	byID  map[uint16]endpoint.Endpoint
	byRef map[endpoint.Ref][]uint16 // every other kind of reference, each list ascending

	refused atomic.Uint64 // transitions
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{byID: map[uint16]endpoint.Endpoint{}, byRef: map[endpoint.Ref][]uint16{}}
}

// Get implements [Lookup].
func (t *Table) Get(ref endpoint.Ref) (endpoint.Endpoint, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := t.byRef[ref]
	if id, ok := ref.ID(); ok {
		ids = []uint16{id}
	}
	if len(ids) > 1 {
		return endpoint.Endpoint{}, fmt.Errorf("endpoint %s: %w: numbers %d and %d among them", ref, ErrAmbiguous, ids[0], ids[1])
	}
	for _, id := range ids {
		if ep, ok := t.byID[id]; ok {
			return ep, nil
		}
	}
	return endpoint.Endpoint{}, fmt.Errorf("endpoint %s: %w", ref, ErrNotFound)
}

// List implements [Lookup].
func (t *Table) List() []endpoint.Endpoint {
	t.mu.RLock()
	list := make([]endpoint.Endpoint, 0, len(t.byID))
	for _, ep := range t.byID {
		list = append(list, ep)
	}
	t.mu.RUnlock()
	slices.SortFunc(list, func(a, b endpoint.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// byAttachment returns all endpoints as they are now.
func (t *Table) byAttachment() map[endpoint.Attachment]endpoint.Endpoint {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[endpoint.Attachment]endpoint.Endpoint, len(t.byID))
	for _, ep := range t.byID {
		all[ep.Spec.Attachment] = ep
	}
	return all
}

// put inserts or replaces the endpoint with the number of ep. An address that another endpoint has is refused with
// [ErrInUse], and nothing changes.
func (t *Table) put(ep endpoint.Endpoint) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, addr := range ep.Addresses.List() {
		for _, other := range t.byRef[endpoint.ByAddress(addr)] {
			if other != ep.ID {
				return fmt.Errorf("address %s: %w, number %d (%s)", addr, ErrInUse, other, t.byID[other].Spec.Attachment)
			}
		}
	}
	t.insert(ep)
	return nil
}

// insert expects the lock.
func (t *Table) insert(ep endpoint.Endpoint) {
	t.removeLocked(ep.ID)
	t.byID[ep.ID] = ep
	for _, ref := range ep.Refs() {
		ids := append(slices.Clone(t.byRef[ref]), ep.ID)
		slices.Sort(ids)
		t.byRef[ref] = ids
	}
}

// transition moves ep to another state, here and in the table, or refuses and counts it. An endpoint in a terminal
// state is not in the table.
func (t *Table) transition(ep *endpoint.Endpoint, who actor, to endpoint.State) bool {
	if !mayBecome(who, ep.State, to) {
		t.refused.Add(1)
		return false
	}
	ep.State = to
	t.mu.Lock()
	defer t.mu.Unlock()
	if to == endpoint.Disconnected || to == endpoint.Invalid {
		t.removeLocked(ep.ID)
	} else {
		t.insert(*ep)
	}
	return true
}

func (t *Table) removeLocked(id uint16) {
	ep, ok := t.byID[id]
	if !ok {
		return
	}
	delete(t.byID, id)
	for _, ref := range ep.Refs() {
		rest := slices.DeleteFunc(slices.Clone(t.byRef[ref]), func(other uint16) bool { return other == id })
		if len(rest) == 0 {
			delete(t.byRef, ref)
		} else {
			t.byRef[ref] = rest
		}
	}
}

// countByState counts the endpoints in each state that an endpoint of the table can be in, zeros too.
func (t *Table) countByState() map[endpoint.State]int {
	count := map[endpoint.State]int{
		endpoint.Waiting: 0, endpoint.Queued: 0, endpoint.Regenerating: 0, endpoint.Ready: 0, endpoint.Restoring: 0, endpoint.Held: 0,
		endpoint.Disconnecting: 0,
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, ep := range t.byID {
		count[ep.State]++
	}
	return count
}

// actor is who asks for a transition.
type actor string

const (
	outside actor = "outside" // the API and the restore
	builder actor = "builder" // the endpoint's own regeneration
)

// transitions says which next states each actor may choose. All others are refused. Disconnected and Invalid are
// terminal.
var transitions = map[actor]map[endpoint.State][]endpoint.State{
	outside: {
		"":                     {endpoint.Waiting, endpoint.Restoring, endpoint.Disconnecting},
		endpoint.Waiting:       {endpoint.Queued, endpoint.Disconnecting, endpoint.Invalid},
		endpoint.Queued:        {endpoint.Disconnecting},
		endpoint.Regenerating:  {endpoint.Disconnecting},
		endpoint.Ready:         {endpoint.Waiting, endpoint.Queued, endpoint.Disconnecting},
		endpoint.Restoring:     {endpoint.Held, endpoint.Disconnecting},
		endpoint.Held:          {endpoint.Disconnecting},
		endpoint.Disconnecting: {endpoint.Disconnected},
	},
	builder: {
		endpoint.Queued:       {endpoint.Regenerating},
		endpoint.Restoring:    {endpoint.Regenerating},
		endpoint.Regenerating: {endpoint.Queued, endpoint.Ready, endpoint.Restoring},
	},
}

func mayBecome(who actor, from, to endpoint.State) bool {
	return slices.Contains(transitions[who][from], to)
}
