package proxy

import (
	"sync"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/quota"
)

// Connections hold buffers while they forward something, and their state of requests. Above a first buffer of each
// connection, the memory of an endpoint and of all connections is bounded.
const (
	maxEndpointMemory = 128 << 20
	maxMemory         = 512 << 20
	memoryUnit        = 1 << 10
)

// memory is what all connections hold above their first buffers.
type memory struct {
	mu    sync.Mutex  // guards the field below
	quota quota.Quota // in units
}

func newMemory(endpoint, all int) *memory {
	return &memory{quota: quota.New(endpoint/memoryUnit, all/memoryUnit)}
}

func (m *memory) acquire(endpoint uint16, units int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.quota.Acquire(endpoint, units) == quota.Acquired
}

func (m *memory) release(endpoint uint16, units int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota.Release(endpoint, units)
}

// sessionMemory is the [bufconn.Memory] of one session.
type sessionMemory struct {
	of       *memory
	endpoint uint16

	mu    sync.Mutex // guards the fields below
	held  int        // bytes
	units int        // of the quota
}

var _ bufconn.Memory = (*sessionMemory)(nil)

// Acquire implements [bufconn.Memory].
func (s *sessionMemory) Acquire(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more := unitsOf(s.held+bytes) - s.units; more > 0 {
		if !s.of.acquire(s.endpoint, more) {
			return false
		}
		s.units += more
	}
	s.held += bytes
	return true
}

// Release implements [bufconn.Memory].
func (s *sessionMemory) Release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= bytes
	if less := s.units - unitsOf(s.held); less > 0 {
		s.of.release(s.endpoint, less)
		s.units -= less
	}
}

// close releases all, at the end of the session: the rest of the buffers is garbage.
func (s *sessionMemory) close() {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	s.Release(held)
}

// unitsOf is how much of the quota a session takes that holds so many bytes.
func unitsOf(bytes int) int {
	return (max(0, bytes-bufconn.BufferSize) + memoryUnit - 1) / memoryUnit
}
