package endpointmanager

import (
	"fmt"
	"time"
)

// NewOn is [New] with a ledger on a Disk, whose writes pass the gate, and with another clock.
func NewOn(p Params, disk *Disk, gate func(write string) error, boot func() time.Duration) Service {
	m := build(p)
	m.boot = boot
	m.turn = func(what string, a Attachment) { _ = gate(fmt.Sprintf("%s %s", what, a)) }
	m.open = func(string) (ledger, error) { return memoryLedger{disk, gate}, nil }
	return m
}

// Serving tells a manager that the API serves.
func Serving(s Service) { latecomers{s.(*manager)}.Serving() }

// Refused counts the transitions that the table has refused.
func (t *Table) Refused() uint64 { return t.refused.Load() }

// At has a manager run in a boot and a network namespace.
func At(s Service, boot string, netns uint64) {
	s.(*manager).here = func() (origin, error) { return origin{boot, netns}, nil }
}

// Hold returns the manager's other side.
func Hold(s Service) Holder { return s.(*manager) }
