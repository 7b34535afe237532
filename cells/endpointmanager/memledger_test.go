package endpointmanager

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Disk stands for the ledger's file: it outlives the managers that write to it.
type Disk struct {
	mu          sync.Mutex // guards the fields below
	attachments map[Attachment]record
	tombstones  []record
	notes       map[Attachment]note
	origin      origin
}

// NewDisk returns an empty one.
func NewDisk() *Disk {
	return &Disk{attachments: map[Attachment]record{}, notes: map[Attachment]note{}}
}

// Phases returns the phase of each record.
func (d *Disk) Phases() map[Attachment]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	phases := map[Attachment]string{}
	for a, rec := range d.attachments {
		phases[a] = string(rec.Phase)
	}
	return phases
}

// memoryLedger is a [ledger] on a Disk. Before each write it asks gate, whose error is the write's: nothing was written.
type memoryLedger struct {
	disk *Disk
	gate func(write string) error
}

func (l memoryLedger) write(what string, change func(d *Disk)) error {
	if err := l.gate(what); err != nil {
		return err
	}
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	change(l.disk)
	return nil
}

func (l memoryLedger) put(rec record) error {
	a := rec.Endpoint.Spec.Attachment
	return l.write(fmt.Sprintf("ledger.put %s %s", a, rec.Phase), func(d *Disk) { d.attachments[a] = rec })
}

func (l memoryLedger) bury(rec record) error {
	a := rec.Endpoint.Spec.Attachment
	return l.write(fmt.Sprintf("ledger.bury %s", a), func(d *Disk) {
		delete(d.attachments, a)
		d.tombstones = append(d.tombstones, rec)
	})
}

func (l memoryLedger) note(n note) error {
	return l.write(fmt.Sprintf("ledger.note %s %d", n.Attachment, n.Began), func(d *Disk) {
		n.Began = max(n.Began, d.notes[n.Attachment].Began)
		d.notes[n.Attachment] = n
	})
}

func (l memoryLedger) expire(oldest, newest time.Duration) error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	old := func(boot time.Duration) bool { return boot < oldest || boot > newest }
	l.disk.tombstones = slices.DeleteFunc(l.disk.tombstones, func(rec record) bool { return old(rec.Boot) })
	maps.DeleteFunc(l.disk.notes, func(_ Attachment, n note) bool { return old(n.Boot) })
	return nil
}

func (l memoryLedger) attachments() (records []record, err error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	for _, rec := range l.disk.attachments {
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b record) int { return int(a.Endpoint.ID) - int(b.Endpoint.ID) })
	return records, nil
}

func (l memoryLedger) tombstones() ([]record, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return slices.Clone(l.disk.tombstones), nil
}

func (l memoryLedger) notes() ([]note, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return slices.Collect(maps.Values(l.disk.notes)), nil
}

func (l memoryLedger) origin() (origin, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return l.disk.origin, nil
}

// setOrigin does not pass the gate: an agent that cannot write it does not start.
func (l memoryLedger) setOrigin(o origin) error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	l.disk.origin = o
	return nil
}

func (l memoryLedger) try() error   { return l.gate("ledger.try") }
func (l memoryLedger) path() string { return "memory" }
func (l memoryLedger) close() error { return nil }
