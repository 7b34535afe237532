package endpointmanager

import (
	"context"
	"fmt"
)

// suspension is the state of a manager whose ledger speaks of another network namespace of this boot. Either the agent was
// started in a wrong one (a DaemonSet without hostNetwork), and the endpoints live in the other; or the other one is gone (a
// test, a nested node). Who calls for a container runtime tells which: it is in the host's network.
//
// Until then nothing is restored, pruned or worked off, nothing is written, what would change endpoints is refused with
// [ErrSuspended], and all that the ledger has is held.
type suspension struct {
	list         []*revived
	ledger, here origin

	// Of the attempt to go on, guarded by the manager's lock.
	resumed chan struct{} // nil unless one is under way; closed at its end
	err     error         // of the latest
}

// suspend holds all that the ledger has, in memory only.
func (m *manager) suspend(list []*revived, ledger, here origin) {
	detail := fmt.Sprintf("the ledger is of network namespace %d of this boot, and the agent runs in %d: it must run in the host's network (hostNetwork: true)", ledger.NetNS, here.NetNS)
	for _, one := range list {
		m.withhold(one.record.Endpoint)
		m.held.begin(one.worker, Held{Endpoint: one.record.Endpoint, Reason: OtherNamespace, Detail: detail})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspended = &suspension{list: list, ledger: ledger, here: here}
	m.log.Error("nothing is restored or removed until a container runtime calls from the network namespace of the agent: it must run in the host's network (hostNetwork: true)",
		"endpoints", len(list), "reason", detail)
}

// Confirm implements [Holder].
func (m *manager) Confirm(ctx context.Context) error {
	m.mu.Lock()
	s := m.suspended
	switch {
	case m.stopped:
		m.mu.Unlock()
		return ErrStopped
	case s == nil:
		m.mu.Unlock()
		return nil
	}
	if s.resumed == nil {
		s.resumed = make(chan struct{})
		m.background.Go(func() { m.resume(s) })
	}
	resumed := s.resumed
	m.mu.Unlock()
	select {
	case <-resumed:
		m.mu.Lock()
		defer m.mu.Unlock()
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrSuspended, ctx.Err())
	}
}

// resume takes the ledger for that of a namespace that is gone, as after a boot.
func (m *manager) resume(s *suspension) {
	m.log.Warn("a container runtime has called from the agent's network namespace: the one of the ledger is gone, and its endpoints are taken down",
		"endpoints", len(s.list))
	err := m.bringAllBack(m.loop, s.list, s.ledger, s.here)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.err = err; err != nil {
		m.log.Error("endpoints of a network namespace that is gone are left: the next call tries again", "error", err)
	} else if m.suspended = nil; !m.stopped {
		m.startLoops()
	}
	close(s.resumed)
	s.resumed = nil
}

// isSuspended is false while the manager goes on again.
func (m *manager) isSuspended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspended != nil && m.suspended.resumed == nil
}
