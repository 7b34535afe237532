package endpointmanager

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/deletequeue"
)

func TestRelationOf(t *testing.T) {
	here := origin{"boot2", 7}
	for ledger, want := range map[origin]relation{
		{}: current, here: current, {"boot1", 7}: former, {"boot1", 8}: former, {"boot2", 8}: undetermined,
	} {
		if got := relationOf(ledger, here); got != want {
			t.Errorf("ledger of %+v: %d, want %d", ledger, got, want)
		}
	}
}

// spoil changes the ledger of a manager that does not run.
func spoil(t *testing.T, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	l, err := openLedgerFile(unstarted(dir, nil).cfg.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.db.Update(change), l.close()); err != nil {
		t.Fatal(err)
	}
}

// TestStartReadsLedgerWithoutOrigin: it is of an agent before origins were written, and taken for one of here.
func TestStartReadsLedgerWithoutOrigin(t *testing.T) {
	dir := t.TempDir()
	leaveOne(t, dir)
	spoil(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(originBucket) })
	m := started(t, dir, &probe{})
	if m.Restored().Adopted != 1 {
		t.Errorf("restored %+v", m.Restored())
	}
	here, err := originHere()
	if got, ledgerErr := m.ledger.origin(); err != nil || ledgerErr != nil || got != here {
		t.Errorf("the ledger is of %+v, %v, want %+v, %v", got, ledgerErr, here, err)
	}
}

// TestStartIgnoresTimesOfAnotherBoot has records that were written in the future: a deletion that was not whole, and one of an
// unknown attachment. The ledger says of no boot.
func TestStartIgnoresTimesOfAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	later := boottime.Now() + 1000*time.Hour
	l, err := openLedgerFile(unstarted(dir, nil).cfg.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	rec := recordFor("c1", deleting, time.Now())
	rec.Boot, rec.Config.Began, rec.Endpoint.Spec.Began = later, later, later
	err = errors.Join(l.put(rec), l.note(note{Attachment: Attachment{"c2", "eth0"}, Began: later, Boot: later}), l.close())
	if err != nil {
		t.Fatal(err)
	}
	m := started(t, dir, &probe{})
	for _, a := range []string{"c1:eth0", "c2:eth0"} {
		if _, err := m.Create(t.Context(), specOf(a), nil); err != nil {
			t.Errorf("ADD of %s: %v", a, err)
		}
	}
}

// TestDeletionRecordOfAnotherBoot neither refuses an ADD nor takes down an endpoint of this boot.
func TestDeletionRecordOfAnotherBoot(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
		t.Fatal(err)
	}
	for _, container := range []string{"c1", "c2"} {
		rec := deletequeue.Record{ContainerID: container, IfName: "eth0", Began: int64(boottime.Now() + time.Hour), Boot: "another"}
		if result := m.deleteRecorded(t.Context(), rec); len(result.Errors) > 0 {
			t.Fatal(result.Errors)
		}
	}
	if _, err := m.Create(t.Context(), specOf("c2:eth0"), nil); err != nil || len(m.table.List()) != 2 {
		t.Errorf("error %v, endpoints %v", err, m.table.List())
	}
}
