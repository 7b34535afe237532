package endpointmanager

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/deletionrecords"
)

// TestStartFails gives up a start half-way, and starts again on the same ledger.
func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	leaveOne(t, dir)
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	for range 10 {
		if err := unstarted(dir, &probe{}).Start(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want the context's", err)
		}
	}
	if m := started(t, dir, &probe{}); len(m.table.List()) != 1 {
		t.Errorf("restored %v", m.table.List())
	}
}

// TestStartIgnoresRecordedState: the phase of a record says what becomes of it, and its state is of another life of the
// agent.
func TestStartIgnoresRecordedState(t *testing.T) {
	for _, state := range []endpoint.State{endpoint.Held, endpoint.Disconnected, "of a later version"} {
		dir := t.TempDir()
		leaveOne(t, dir)
		spoil(t, dir, func(tx *bbolt.Tx) error {
			bucket := tx.Bucket([]byte("attachments-v1"))
			key, value := bucket.Cursor().First()
			changed := bytes.Replace(value, []byte(`"State":"regenerating"`), []byte(`"State":"`+state+`"`), 1)
			if bytes.Equal(changed, value) {
				t.Fatalf("the record has no state to change: %s", value)
			}
			return bucket.Put(bytes.Clone(key), changed)
		})
		m := started(t, dir, &probe{})
		if list := m.table.List(); len(list) != 1 || list[0].State != endpoint.Ready || m.Restored().Adopted != 1 {
			t.Errorf("recorded as %q: %+v, restored %+v", state, list, m.Restored())
		}
	}
}

// TestDeletionTimeWallClock has tombstones whose wall clock was wrong by a year either way.
func TestDeletionTimeWallClock(t *testing.T) {
	dir := t.TempDir()
	l, err := ledger.Open(unstarted(dir, nil).cfg.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	for name, jump := range map[string]time.Duration{"past": -8760 * time.Hour, "future": 8760 * time.Hour} {
		rec := recordFor(name, ledger.Tombstone, time.Now().Add(jump))
		rec.Boot = boottime.Now() - 5*time.Second
		if err := l.PutTombstone(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := &probe{}
	started(t, dir, p)
	if len(p.buried) != 2 {
		t.Fatalf("remembered %v", p.buried)
	}
	for _, d := range p.buried {
		if age := time.Since(d.At); age < 5*time.Second || age > time.Minute {
			t.Errorf("%s: deleted %s ago, want 5s", d.Endpoint.Spec.Attachment, age)
		}
	}
}

func TestLedgerRoundTrip(t *testing.T) {
	dir := t.TempDir()
	m := started(t, dir, &probe{})
	want, err := m.Create(t.Context(), specOf("c1:eth0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, &probe{})
	if got, err := m.table.Get(endpoint.ByID(want.ID)); err != nil || got != want {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

// TestLedgerLaterVersion: its records may be of living endpoints, and must not be ignored.
func TestLedgerLaterVersion(t *testing.T) {
	changes := map[string]func(*bbolt.Tx) error{
		"another bucket": func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("attachments-v2")); return err },
		"another phase": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("attachments-v1")).Put([]byte("c1:eth0"), []byte(`{"Phase":"moving","Endpoint":{"ID":1,"Spec":{"Attachment":{"ContainerID":"c1","IfName":"eth0"}}}}`))
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := unstarted(dir, &probe{})
			spoil(t, dir, change)
			if err := m.Start(t.Context()); !errors.Is(err, ledger.ErrOtherVersion) {
				t.Errorf("error %v, want ledger.ErrOtherVersion", err)
			}
		})
	}
}

func TestDeletionRecordOfEarlierLife(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	for a, began := range map[string]time.Duration{"c1:eth0": 10, "c1:net1": 30, "c2:eth0": 10} {
		spec := specOf(a)
		spec.Began = began
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, rec := range []deletionrecords.Record{{ContainerID: "c1", Began: 20}, {ContainerID: "c2", IfName: "eth0", Began: 5}} {
		if result := m.deletionRecords.delete(t.Context(), rec); len(result.Errors) > 0 {
			t.Fatal(result.Errors)
		}
	}
	var left []string
	for _, ep := range m.table.List() {
		left = append(left, ep.Spec.Attachment.String())
	}
	slices.Sort(left)
	if want := []string{"c1:net1", "c2:eth0"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// TestRestoreUnannouncedEndpoint has a creation fail, and its undo, and the agent end before it is whole.
func TestRestoreUnannouncedEndpoint(t *testing.T) {
	dir, no := t.TempDir(), errors.New("the kernel said no")
	p := &probe{detach: func() error { return no }}
	m := unstarted(dir, p)
	m.steps = endpoint.Steps{p, &probe{attach: func(context.Context) error { return no }}}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); !errors.Is(err, no) {
		t.Fatalf("error %v", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := &probe{}
	if m = started(t, dir, next); len(m.table.List()) != 0 || m.Restored().Undone != 1 || len(next.told) != 0 {
		t.Errorf("left %v, report %+v, told %v", m.table.List(), m.Restored(), next.told)
	}
}

// TestDeletionRecordWhileRunning: a plugin whose DEL was not answered in time leaves one.
func TestDeletionRecordWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := started(t, t.TempDir(), &probe{})
		if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
			t.Fatal(err)
		}
		rec := deletionrecords.Record{ContainerID: "c1", IfName: "eth0", Began: int64(boottime.Now())}
		if err := deletionrecords.Put(m.cfg.deletionsPath(), rec); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recordsInterval + time.Second)
		synctest.Wait()
		waiting, _, err := deletionrecords.Look(m.cfg.deletionsPath())
		if err != nil || len(waiting) != 0 || len(m.table.List()) != 0 {
			t.Errorf("left: records %v, endpoints %v, error %v", waiting, m.table.List(), err)
		}
	})
}

// TestRestartKeepsLabels of the creation, and labels that were changed later.
func TestRestartKeepsLabels(t *testing.T) {
	dir, spec := t.TempDir(), specOf("c1:eth0")
	spec.Metadata = `{"labels":{"app":"web"}}`
	m := started(t, dir, &probe{})
	ep, err := m.Create(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Update(t.Context(), ep.Spec.Attachment, endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "http", Port: 80}}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `{"labels":{"app":"web"},"namedPorts":[{"name":"http","protocol":"TCP","port":80}]}`
	restored := ""
	m = started(t, dir, &probe{restore: func(ep endpoint.Endpoint) error { restored = ep.Metadata; return nil }})
	if ep, err := m.table.Get(endpoint.ByAttachment(ep.Spec.Attachment)); err != nil || ep.Metadata != want || restored != want {
		t.Errorf("after a restart %s (%v), restored with %s, want %s", ep.Metadata, err, restored, want)
	}
}
