package proxy

import (
	"testing"

	"porin.dev/porin/cells/proxy/bufconn"
)

// TestSessionMemory has the sessions of one endpoint hold all they get: another one gets its part, and nothing is held
// when they have ended.
func TestSessionMemory(t *testing.T) {
	const endpoint, all = 1 << 20, 4 << 20
	m := newMemory(endpoint, all)
	var greedy []*sessionMemory
	held := 0
	for len(greedy) < 100 {
		s := &sessionMemory{of: m, endpoint: 1}
		greedy = append(greedy, s)
		if !s.Acquire(bufconn.BufferSize) {
			t.Fatalf("session %d does not get its first buffer", len(greedy))
		}
		for s.Acquire(64 << 10) {
			held += 64 << 10
		}
	}
	if held < endpoint/2 || held > endpoint {
		t.Errorf("the sessions of an endpoint hold %d bytes above their first buffers, want at most %d", held, endpoint)
	}
	other := &sessionMemory{of: m, endpoint: 2}
	if !other.Acquire(bufconn.BufferSize + all/2/256) {
		t.Error("another endpoint does not get its part")
	}
	other.Release(bufconn.BufferSize + all/2/256)
	for _, s := range greedy {
		s.close()
	}
	if used := m.quota.Used(); used != 0 {
		t.Errorf("%d units are held when all sessions have ended", used)
	}
}
