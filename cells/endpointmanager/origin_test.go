package endpointmanager

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/deletionrecords"
)

func TestOrigin(t *testing.T) {
	here := ledger.Origin{Boot: "boot2", NetNS: 7}
	for origin, want := range map[ledger.Origin]struct{ former, refused bool }{
		{}: {}, here: {}, {Boot: "boot1", NetNS: 7}: {former: true}, {Boot: "boot1", NetNS: 8}: {former: true}, {Boot: "boot2", NetNS: 8}: {refused: true},
	} {
		if got := isFormer(origin, here); got != want.former {
			t.Errorf("ledger of %+v: former %v, want %v", origin, got, want.former)
		}
		if err := checkOrigin(origin, here, "ledger.db"); errors.Is(err, ErrOtherNamespace) != want.refused {
			t.Errorf("ledger of %+v: error %v", origin, err)
		}
	}
}

// TestCheckOrigin reads a ledger that is not open, and makes none.
func TestCheckOrigin(t *testing.T) {
	cfg := unstarted(t.TempDir(), nil).cfg
	if err := CheckOrigin(cfg); err != nil {
		t.Errorf("without a ledger: %v", err)
	}
	if _, err := os.Stat(cfg.ledgerPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a ledger now: %v", err)
	}
	here, err := originHere()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		origin ledger.Origin
		want   error
	}{{ledger.Origin{}, nil}, {here, nil}, {ledger.Origin{Boot: here.Boot, NetNS: here.NetNS + 1}, ErrOtherNamespace}, {ledger.Origin{Boot: "another"}, nil}} {
		l, err := ledger.Open(cfg.ledgerPath())
		if err == nil && row.origin != (ledger.Origin{}) {
			err = l.SetOrigin(row.origin)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		if err := CheckOrigin(cfg); !errors.Is(err, row.want) {
			t.Errorf("ledger of %+v: error %v, want %v", row.origin, err, row.want)
		}
	}
}

// spoil changes the ledger of a manager that does not run.
func spoil(t *testing.T, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	path := unstarted(dir, nil).cfg.ledgerPath()
	l, err := ledger.Open(path) // which makes it
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestStartReadsLedgerWithoutOrigin: it is of an agent before origins were written, and taken for one of here.
func TestStartReadsLedgerWithoutOrigin(t *testing.T) {
	dir := t.TempDir()
	leaveOne(t, dir)
	spoil(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("origin-v1")) })
	m := started(t, dir, &probe{})
	if m.Restored().Adopted != 1 {
		t.Errorf("restored %+v", m.Restored())
	}
	here, err := originHere()
	if got, ledgerErr := m.ledger.Origin(); err != nil || ledgerErr != nil || got != here {
		t.Errorf("the ledger is of %+v, %v, want %+v, %v", got, ledgerErr, here, err)
	}
}

// TestStartIgnoresTimesOfAnotherBoot has records that were written in the future: a deletion that was not whole, and
// one of an unknown attachment. The ledger says of no boot.
func TestStartIgnoresTimesOfAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	later := boottime.Now() + 1000*time.Hour
	l, err := ledger.Open(unstarted(dir, nil).cfg.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	rec := recordFor("c1", ledger.Deleting, time.Now())
	rec.Boot, rec.Config.Began, rec.Endpoint.Spec.Began = later, later, later
	err = errors.Join(l.Put(rec), l.RecordDeletion(ledger.DeletionNote{Attachment: endpoint.Attachment{ContainerID: "c2", IfName: "eth0"}, Began: later, Boot: later}), l.Close())
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
		rec := deletionrecords.Record{ContainerID: container, IfName: "eth0", Began: int64(boottime.Now() + time.Hour), Boot: "another"}
		if result := m.deletionRecords.delete(t.Context(), rec); len(result.Errors) > 0 {
			t.Fatal(result.Errors)
		}
	}
	if _, err := m.Create(t.Context(), specOf("c2:eth0"), nil); err != nil || len(m.table.List()) != 2 {
		t.Errorf("error %v, endpoints %v", err, m.table.List())
	}
}
