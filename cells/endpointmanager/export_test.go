package endpointmanager

import (
	"context"
	"fmt"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/endpointmanager/ledger/ledgertest"
)

// NewOn is [New] with a ledger on a Disk, whose writes pass the gate, and with another clock.
func NewOn(p Params, disk *ledgertest.Disk, gate func(write string) error, boot func() time.Duration) Service {
	m := newUnmeasured(p)
	m.boot = boot
	m.afterWait = func(s endpoint.Spec) { _ = gate(fmt.Sprintf("resume %s, which began at %s", s.Attachment, s.Began)) }
	m.open = func(string) (ledger.Ledger, error) { return ledgertest.Memory{Disk: disk, Gate: gate}, nil }
	return m
}

// Serving notifies a manager that the API serves.
func Serving(s Service) { s.(*manager).deletionRecords.Serving() }

// Dying has what is left of a killed manager begin nothing more, and take no error for a success.
func Dying(s Service) {
	r := s.(*manager).registry
	r.withLock(func() { r.stopped, r.closed = true, true })
}

// Refused counts the transitions that the table has refused.
func (t *Table) Refused() uint64 { return t.refused.Load() }

// At has a manager run in a boot and a network namespace.
func At(s Service, boot string, netns uint64) {
	m := s.(*manager)
	here := func() (ledger.Origin, error) { return ledger.Origin{Boot: boot, NetNS: netns}, nil }
	m.here = here
}

// Hold returns the manager's other side.
func Hold(s Service) Holder { return s.(*manager) }

// ForgetDeletions is a fault: an ADD that began before a deletion of its attachment is no longer refused.
func ForgetDeletions(s Service) {
	m := s.(*manager)
	m.registry.withLock(func() { clear(m.registry.calls.deleted) })
}

// ForgetPods is a fault: the next container of a pod does not supersede its older containers.
func ForgetPods(s Service) {
	m := s.(*manager)
	m.registry.withLock(func() { clear(m.registry.byPod) })
}

// FreeNumber is a fault: the number is free while its endpoint is there, and the next one gets it.
func FreeNumber(s Service, id uint16) {
	r := s.(*manager).registry
	r.withLock(func() {
		delete(r.numbers.used, id)
		r.numbers.last = id - 1
	})
}

// DeleteDecidedWhenPosted is a fault: a DEL does not find out in its turn that the same ADD has come again after it
// began.
func DeleteDecidedWhenPosted(s Service) func(context.Context, endpoint.Attachment, endpoint.DeleteConfig) DeleteResult {
	m := s.(*manager)
	return func(ctx context.Context, a endpoint.Attachment, cfg endpoint.DeleteConfig) DeleteResult {
		if e := m.registry.find(a); e != nil && m.registry.beganAt(e) <= cfg.Began {
			m.registry.remember(a, cfg.Began, nil)
			return m.removeOne(ctx, e, endpoint.DeleteConfig{}, startWatch(endpoint.OperationDel))
		}
		return m.Delete(ctx, a, cfg)
	}
}
