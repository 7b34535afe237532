package ledgertest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// Run holds a ledger to what [ledger.Ledger] promises. fresh returns, for each test, what opens the ledger: empty the
// first time, then as it was when it was closed.
func Run(t *testing.T, fresh func(t *testing.T) (open func() (ledger.Ledger, error))) {
	for name, test := range map[string]func(*testing.T, *reopened){
		"records": testRecords, "tombstones": testTombstones, "deletion notes": testNotes, "expire": testExpire, "origin": testOrigin,
	} {
		t.Run(name, func(t *testing.T) {
			l := &reopened{open: fresh(t)}
			l.start(t)
			t.Cleanup(func() { must(t, l.Close()) })
			test(t, l)
		})
	}
}

// reopened is a ledger that can be closed and opened again.
type reopened struct {
	ledger.Ledger
	open func() (ledger.Ledger, error)
}

func (l *reopened) start(t *testing.T) {
	t.Helper()
	var err error
	if l.Ledger, err = l.open(); err != nil {
		t.Fatal(err)
	}
}

func (l *reopened) restart(t *testing.T) {
	t.Helper()
	must(t, l.Close())
	l.start(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// record returns a record of endpoint number id, written at so many seconds after the boot.
func record(container string, id uint16, p ledger.Phase, seconds int) ledger.Record {
	ep := endpoint.Endpoint{ID: id, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: container, IfName: "eth0"}}}
	return ledger.Record{Phase: p, Endpoint: ep, At: time.Unix(int64(seconds), 0).UTC(), Boot: time.Duration(seconds) * time.Second}
}

func wants[T any](t *testing.T, what string, read func() ([]T, error), want ...T) {
	t.Helper()
	got, err := read()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%s: error %v (-want +got):\n%s", what, err, diff)
	}
}

func testRecords(t *testing.T, l *reopened) {
	wants(t, "attachments of a new ledger", l.Attachments)
	whole := record("c2", 1, ledger.Committed, 2)
	whole.Endpoint.Host = endpoint.Interface{Name: "por1", Index: 3, MAC: endpoint.MAC{2, 1}}
	whole.Told = true
	other := record("c1", 2, ledger.Deleting, 3)
	other.Config = endpoint.DeleteConfig{NoIPRelease: true, Began: time.Second}
	for _, rec := range []ledger.Record{record("c2", 1, ledger.Intent, 1), whole, other} {
		must(t, l.Put(rec))
	}
	must(t, l.Probe())
	wants(t, "attachments", l.Attachments, other, whole)
	l.restart(t)
	wants(t, "attachments after a restart", l.Attachments, other, whole)
	wants(t, "tombstones", l.Tombstones)
	whole.Endpoint.MTU = 1400
	must(t, l.PutAll([]ledger.Record{whole, record("c3", 4, ledger.Held, 5)}))
	must(t, l.PutAll(nil))
	l.restart(t)
	wants(t, "attachments after PutAll", l.Attachments, other, whole, record("c3", 4, ledger.Held, 5))
}

func testTombstones(t *testing.T, l *reopened) {
	must(t, l.Put(record("c1", 1, ledger.Committed, 1)))
	second, first := record("c1", 1, ledger.Tombstone, 9), record("c2", 2, ledger.Tombstone, 5)
	must(t, l.PutTombstone(second))
	must(t, l.PutTombstone(first)) // of what was never on record
	wants(t, "attachments", l.Attachments)
	wants(t, "tombstones", l.Tombstones, first, second)
	next := record("c1", 3, ledger.Intent, 10)
	must(t, l.Put(next))
	l.restart(t)
	wants(t, "attachments after a restart", l.Attachments, next)
	wants(t, "tombstones after a restart", l.Tombstones, first, second)
}

func testNotes(t *testing.T, l *reopened) {
	container, other := endpoint.Attachment{ContainerID: "c1"}, endpoint.Attachment{ContainerID: "c2", IfName: "eth0"}
	must(t, l.RecordDeletion(ledger.DeletionNote{Attachment: other, Began: 8, Boot: 9}))
	must(t, l.RecordDeletion(ledger.DeletionNote{Attachment: container, Began: 4, Boot: 5}))
	must(t, l.RecordDeletion(ledger.DeletionNote{Attachment: container, Began: 2, Boot: 6})) // began earlier, and came later
	l.restart(t)
	wants(t, "notes", l.DeletionNotes, ledger.DeletionNote{Attachment: container, Began: 4, Boot: 6}, ledger.DeletionNote{Attachment: other, Began: 8, Boot: 9})
}

func testExpire(t *testing.T, l *reopened) {
	living := record("c9", 9, ledger.Committed, 1)
	must(t, l.Put(living))
	var kept []ledger.Record
	for i, seconds := range []int{1, 3, 5, 7, 9} {
		rec := record("c"+string(rune('a'+i)), uint16(1+i), ledger.Tombstone, seconds)
		must(t, l.PutTombstone(rec))
		must(t, l.RecordDeletion(ledger.DeletionNote{Attachment: rec.Endpoint.Spec.Attachment, Began: rec.Boot, Boot: rec.Boot}))
		if seconds >= 3 && seconds <= 7 {
			kept = append(kept, rec)
		}
	}
	must(t, l.Expire(3*time.Second, 7*time.Second))
	l.restart(t)
	wants(t, "tombstones", l.Tombstones, kept...)
	wants(t, "attachments", l.Attachments, living)
	if notes, err := l.DeletionNotes(); err != nil || len(notes) != len(kept) {
		t.Errorf("notes %v, error %v, want %d", notes, err, len(kept))
	}
}

func testOrigin(t *testing.T, l *reopened) {
	if o, err := l.Origin(); err != nil || o != (ledger.Origin{}) {
		t.Errorf("origin of a new ledger %+v, error %v", o, err)
	}
	want := ledger.Origin{Boot: "b1", NetNS: 4711}
	must(t, l.SetOrigin(want))
	l.restart(t)
	if o, err := l.Origin(); err != nil || o != want {
		t.Errorf("origin %+v, error %v, want %+v", o, err, want)
	}
}
