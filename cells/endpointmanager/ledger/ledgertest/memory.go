// Package ledgertest has a ledger in memory, and the test that it and the file pass.
package ledgertest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// Disk stands for the ledger's file: it outlives the managers that write to it.
type Disk struct {
	mu          sync.Mutex // guards the fields below
	attachments map[endpoint.Attachment]ledger.Record
	tombstones  []ledger.Record
	notes       map[endpoint.Attachment]ledger.DeletionNote
	origin      ledger.Origin
}

// NewDisk returns an empty one.
func NewDisk() *Disk {
	return &Disk{attachments: map[endpoint.Attachment]ledger.Record{}, notes: map[endpoint.Attachment]ledger.DeletionNote{}}
}

// Phases returns the phase of each record.
func (d *Disk) Phases() map[endpoint.Attachment]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	phases := map[endpoint.Attachment]string{}
	for a, rec := range d.attachments {
		phases[a] = string(rec.Phase)
	}
	return phases
}

// Memory is a [ledger.Ledger] on a Disk. Before each write it asks Gate, whose error is the write's: nothing was
// written.
type Memory struct {
	Disk *Disk
	Gate func(write string) error
}

func (l Memory) write(what string, change func(d *Disk)) error {
	if err := l.Gate(what); err != nil {
		return err
	}
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	change(l.Disk)
	return nil
}

func (l Memory) PutAll(recs []ledger.Record) error {
	return l.write(fmt.Sprintf("ledger.putAll %d", len(recs)), func(d *Disk) {
		for _, rec := range recs {
			d.attachments[rec.Endpoint.Spec.Attachment] = rec
		}
	})
}

func (l Memory) Put(rec ledger.Record) error {
	a := rec.Endpoint.Spec.Attachment
	return l.write(fmt.Sprintf("ledger.put %s %s", a, rec.Phase), func(d *Disk) { d.attachments[a] = rec })
}

func (l Memory) PutTombstone(rec ledger.Record) error {
	a := rec.Endpoint.Spec.Attachment
	return l.write(fmt.Sprintf("ledger.bury %s", a), func(d *Disk) {
		delete(d.attachments, a)
		d.tombstones = append(d.tombstones, rec)
	})
}

func (l Memory) RecordDeletion(n ledger.DeletionNote) error {
	return l.write(fmt.Sprintf("ledger.note %s %d", n.Attachment, n.Began), func(d *Disk) {
		n.Began = max(n.Began, d.notes[n.Attachment].Began)
		d.notes[n.Attachment] = n
	})
}

func (l Memory) Expire(oldest, newest time.Duration) error {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	old := func(boot time.Duration) bool { return boot < oldest || boot > newest }
	l.Disk.tombstones = slices.DeleteFunc(l.Disk.tombstones, func(rec ledger.Record) bool { return old(rec.Boot) })
	maps.DeleteFunc(l.Disk.notes, func(_ endpoint.Attachment, n ledger.DeletionNote) bool { return old(n.Boot) })
	return nil
}

func (l Memory) Attachments() (records []ledger.Record, err error) {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	for _, rec := range l.Disk.attachments {
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b ledger.Record) int { return compare(a.Endpoint.Spec.Attachment, b.Endpoint.Spec.Attachment) })
	return records, nil
}

func (l Memory) Tombstones() ([]ledger.Record, error) {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(l.Disk.tombstones), func(a, b ledger.Record) int {
		return cmp.Or(cmp.Compare(a.Boot, b.Boot), compare(a.Endpoint.Spec.Attachment, b.Endpoint.Spec.Attachment))
	}), nil
}

func (l Memory) DeletionNotes() ([]ledger.DeletionNote, error) {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.Disk.notes), func(a, b ledger.DeletionNote) int { return compare(a.Attachment, b.Attachment) }), nil
}

func compare(a, b endpoint.Attachment) int { return strings.Compare(a.String(), b.String()) }

func (l Memory) Origin() (ledger.Origin, error) {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	return l.Disk.origin, nil
}

// SetOrigin does not pass the gate: an agent that cannot write it does not start.
func (l Memory) SetOrigin(o ledger.Origin) error {
	l.Disk.mu.Lock()
	defer l.Disk.mu.Unlock()
	l.Disk.origin = o
	return nil
}

func (l Memory) Probe() error { return l.Gate("ledger.try") }
func (l Memory) Lost() error  { return nil }
func (l Memory) Path() string { return "memory" }
func (l Memory) Close() error { return nil }
