package endpointmanager

import (
	"context"
	"fmt"

	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/netns"
)

// suspension is the state of a restorer whose ledger speaks of another network namespace of this boot. Either the agent was
// started in a wrong one (a DaemonSet without hostNetwork), and the endpoints live in the other; or the other one is gone (a
// test, a nested node). Who calls for a container runtime tells which: it is in the host's network.
//
// Until then nothing is restored, pruned or deleted, nothing is written, what would change endpoints is refused with
// [ErrSuspended], and all that the ledger has is held.
type suspension struct {
	list         []*restoration
	origin, here ledger.Origin

	// Of the attempt to go on, guarded by the gate's lock.
	resumed chan struct{} // nil unless one is under way; closed at its end
	err     error         // of the latest
}

// suspend holds all that the ledger has, in memory only.
func (r *restorer) suspend(list []*restoration, origin, here ledger.Origin) {
	detail := fmt.Sprintf("the ledger is of network namespace %d of this boot, and the agent runs in %d: it must run in the host's network (hostNetwork: true)", origin.NetNS, here.NetNS)
	for _, one := range list {
		one.worker.do(func() { r.hold(one.worker, OtherNamespace, detail) })
	}
	r.suspension = suspension{list: list, origin: origin, here: here}
	r.gate.suspend()
	r.log.Error("nothing is restored or removed until a container runtime calls from the network namespace of the agent: it must run in the host's network (hostNetwork: true)",
		"endpoints", len(list), "reason", detail)
}

// Confirm implements [Holder].
func (r *restorer) Confirm(ctx context.Context) error {
	s, mu := &r.suspension, &r.gate.mu
	mu.Lock()
	switch {
	case r.gate.stopped:
		mu.Unlock()
		return ErrStopped
	case !r.gate.suspended:
		mu.Unlock()
		return nil
	}
	if s.resumed == nil {
		s.resumed, r.gate.resuming = make(chan struct{}), true
		r.registry.background.Go(r.resume)
	}
	resumed := s.resumed
	mu.Unlock()
	select {
	case <-resumed:
		mu.Lock()
		defer mu.Unlock()
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrSuspended, ctx.Err())
	}
}

// resume takes the ledger for that of a namespace that is gone, as after a boot.
func (r *restorer) resume() {
	s := &r.suspension
	r.log.Warn("a container runtime has called from the agent's network namespace: the one of the ledger is gone, and its endpoints are taken down",
		"endpoints", len(s.list))
	err := r.restoreAll(r.resumes, s.list, s.origin, s.here)
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if s.err = err; err != nil {
		r.log.Error("endpoints of a network namespace that is gone are left: the next call tries again", "error", err)
	} else {
		r.gate.suspended = false
	}
	close(s.resumed)
	s.resumed, r.gate.resuming = nil, false
}

// originHere is that of this process.
func originHere() (here ledger.Origin, err error) {
	if here.Boot, err = boottime.ID(); err != nil {
		return here, err
	}
	here.NetNS, err = netns.OwnCookie()
	return here, err
}

// relation says what a ledger's records are worth to this process.
type relation int

const (
	current      relation = iota // of this boot and this namespace
	former                       // of another boot, or of a namespace that is gone: nothing of what they name is there
	undetermined                 // of another namespace of this boot, which may be the host's: see suspension
)

// relationOf compares the origin of a ledger with that of this process.
func relationOf(origin, here ledger.Origin) relation {
	switch {
	case origin == ledger.Origin{} || origin == here:
		return current
	case origin.Boot != here.Boot:
		return former
	}
	return undetermined
}
