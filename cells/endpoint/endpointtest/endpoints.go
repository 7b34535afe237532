package endpointtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// Endpoints are the endpoints of a node in memory, as the manager's Lookup shows them. A test puts them there.
type Endpoints struct {
	mu   sync.Mutex // guards the field below
	byID map[uint16]endpoint.Endpoint
}

// NewEndpoints returns an empty table.
func NewEndpoints() *Endpoints { return &Endpoints{byID: map[uint16]endpoint.Endpoint{}} }

// Put inserts the endpoint, or replaces the one of its number.
func (e *Endpoints) Put(ep endpoint.Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byID[ep.ID] = ep
}

// Delete removes the endpoint of the number. None is a success.
func (e *Endpoints) Delete(id uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byID, id)
}

// Get implements endpointmanager.Lookup.
func (e *Endpoints) Get(ref endpoint.Ref) (endpoint.Endpoint, error) {
	attachment, byAttachment := ref.Attachment()
	var found []endpoint.Endpoint
	for _, ep := range e.List() {
		if byAttachment && ep.Spec.Attachment == attachment || !byAttachment && ref.Matches(ep) {
			found = append(found, ep)
		}
	}
	switch len(found) {
	case 0:
		return endpoint.Endpoint{}, fault.New(fault.NotFound, fmt.Sprintf("endpoint %s: no such endpoint", ref))
	case 1:
		return found[0], nil
	}
	return endpoint.Endpoint{}, fault.New(fault.Conflict, fmt.Sprintf("endpoint %s: more than one endpoint", ref))
}

// List implements endpointmanager.Lookup.
func (e *Endpoints) List() []endpoint.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.byID), func(a, b endpoint.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
}
