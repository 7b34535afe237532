package dnsproxy

import (
	"net/netip"
	"sync"
)

// slots counts something of each endpoint, and of all. The caller has a lock.
type slots struct {
	each, total int
	used        int
	endpoints   map[uint16]int
}

func newSlots(each, total int) slots {
	return slots{each: each, total: total, endpoints: map[uint16]int{}}
}

// take returns another outcome than "" when there is no room.
func (s *slots) take(endpoint uint16) Outcome {
	switch {
	case s.endpoints[endpoint] >= s.each:
		return EndpointLimit
	case s.used >= s.total:
		return TotalLimit
	}
	s.endpoints[endpoint]++
	s.used++
	return ""
}

func (s *slots) release(endpoint uint16) {
	s.used--
	if s.endpoints[endpoint]--; s.endpoints[endpoint] == 0 {
		delete(s.endpoints, endpoint)
	}
}

// inFlight has the queries that are under way.
type inFlight struct {
	mu    sync.Mutex // guards the fields below
	slots slots
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
	return &inFlight{slots: newSlots(each, total), keys: map[flightKey]struct{}{}}
}

// add returns another outcome than "" when there is no room, or the query is under way.
func (f *inFlight) add(key flightKey) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.keys[key]; ok {
		return Duplicate
	}
	outcome := f.slots.take(key.endpoint)
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
	f.slots.release(endpoint)
}
