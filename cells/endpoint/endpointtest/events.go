package endpointtest

import (
	"slices"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// Events is a subscriber that keeps what it hears.
type Events struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	alive map[endpoint.Attachment]uint16 // by number
}

var _ endpoint.Subscriber = (*Events)(nil)

// NewEvents returns a subscriber that has heard of nothing.
func NewEvents() *Events { return &Events{alive: map[endpoint.Attachment]uint16{}} }

// EndpointCreated implements endpoint.Subscriber.
func (e *Events) EndpointCreated(ep endpoint.Endpoint) { e.began("created", ep) }

// EndpointRestored implements endpoint.Subscriber.
func (e *Events) EndpointRestored(ep endpoint.Endpoint) { e.began("restored", ep) }

// EndpointUpdated implements endpoint.Subscriber.
func (e *Events) EndpointUpdated(ep endpoint.Endpoint) { e.began("updated", ep) }

// EndpointDeleted implements endpoint.Subscriber.
func (e *Events) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, "deleted "+ep.Spec.Attachment.String())
	delete(e.alive, ep.Spec.Attachment)
}

func (e *Events) began(what string, ep endpoint.Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, what+" "+ep.Spec.Attachment.String())
	e.alive[ep.Spec.Attachment] = ep.ID
}

// Lines returns what was heard, in order: "created c1:eth0".
func (e *Events) Lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines)
}

// Knows reports whether the latest that was heard of the attachment is a beginning.
func (e *Events) Knows(_ testing.TB, ep endpoint.Endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.alive[ep.Spec.Attachment]
	return ok && id == ep.ID
}
