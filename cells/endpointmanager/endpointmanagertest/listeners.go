package endpointmanagertest

import (
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// listeners are the subscribers, and which endpoints they know of.
type listeners struct {
	subscribers []endpoint.Subscriber

	mu   sync.Mutex // guards the field below
	told map[uint16]bool
}

func (l *listeners) created(ep endpoint.Endpoint) {
	l.setTold(ep.ID, true)
	for _, s := range l.subscribers {
		s.EndpointCreated(ep)
	}
}

func (l *listeners) updated(before, ep endpoint.Endpoint) {
	if before.Metadata == ep.Metadata {
		return
	}
	for _, s := range l.subscribers {
		s.EndpointUpdated(ep)
	}
}

// deleted tells the subscribers once, and not of an endpoint that they have not heard of.
func (l *listeners) deleted(ep endpoint.Endpoint, cfg endpoint.DeleteConfig) {
	if !l.setTold(ep.ID, false) {
		return
	}
	for _, s := range l.subscribers {
		s.EndpointDeleted(ep, cfg)
	}
}

func (l *listeners) setTold(id uint16, told bool) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.told[id]
	l.told[id] = told
	return before
}
