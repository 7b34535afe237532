package dnsproxy

import (
	"net/netip"
	"sync"

	"porin.dev/porin/cells/proxy/share"
)

// take takes one for an endpoint, and returns another outcome than "" when there is no room.
func take(s *share.Share, endpoint uint16) Outcome {
	switch s.Take(endpoint) {
	case share.EndpointFull:
		return EndpointLimit
	case share.AllFull:
		return TotalLimit
	}
	return ""
}

// inFlight has the queries that are under way.
type inFlight struct {
	mu    sync.Mutex // guards the fields below
	slots share.Share
	keys  map[flightKey]struct{}
}

// flightKey is what a query and its repetition have in common.
type flightKey struct {
	endpoint       uint16
	id             uint16
	tcp            bool
	client, server netip.AddrPort
	question       string
}

func newFlightKey(q Query, question question) flightKey {
	return flightKey{q.Endpoint, word(q.Message, 0), q.TCP, q.Client, q.Server, string(q.Message[headerSize:question.end])}
}

func newInFlight(each, total int) *inFlight {
	return &inFlight{slots: share.New(each, total), keys: map[flightKey]struct{}{}}
}

// add returns another outcome than "" when there is no room, or the query is under way.
func (f *inFlight) add(key flightKey) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.keys[key]; ok {
		return Duplicate
	}
	outcome := take(&f.slots, key.endpoint)
	if outcome == "" {
		f.keys[key] = struct{}{}
	}
	return outcome
}

// answered has the query be a new one when it comes again. Its slot is still taken.
func (f *inFlight) answered(key flightKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, key)
}

func (f *inFlight) release(endpoint uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots.Release(endpoint)
}
