package dnsproxy

import (
	"net/netip"
	"sync"

	"porin.dev/porin/cells/proxy/quota"
)

// inFlight has the queries that are in flight.
type inFlight struct {
	mu    sync.Mutex // guards the fields below
	quota quota.Quota
	keys  map[queryKey]struct{}
}

// queryKey is what a query and its retransmission by the client have in common.
type queryKey struct {
	endpoint       uint16
	id             uint16
	tcp            bool
	client, server netip.AddrPort
	question       string
}

func newInFlight(each, total int) *inFlight {
	return &inFlight{quota: quota.New(each, total), keys: map[queryKey]struct{}{}}
}

// add returns another outcome than "" when there is no room, or the query is in flight.
func (f *inFlight) add(key queryKey) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.keys[key]; ok {
		return Duplicate
	}
	switch f.quota.Acquire(key.endpoint, 1) {
	case quota.EndpointLimit:
		return EndpointLimit
	case quota.TotalLimit:
		return TotalLimit
	}
	f.keys[key] = struct{}{}
	return ""
}

// answered makes the query a new one when it comes again. It still counts.
func (f *inFlight) answered(key queryKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, key)
}

func (f *inFlight) release(endpoint uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota.Release(endpoint, 1)
}
