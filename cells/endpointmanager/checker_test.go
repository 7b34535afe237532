package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/endpointmanager/ledger/ledgertest"
	"porin.dev/porin/internal/deletionrecords"
)

// kinds returns what the manager's checker finds.
func kinds(t *testing.T, m *manager, only string) (names []string) {
	t.Helper()
	findings, err := newChecker(m).Examine(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range newChecker(m).Kinds() {
		known[k.Name] = true
	}
	for _, f := range findings {
		if !known[f.Kind] {
			t.Errorf("kind %q is not among the checker's", f.Kind)
		}
		names = append(names, f.Kind+" "+f.Endpoint)
	}
	slices.Sort(names)
	return names
}

// repairAll runs the repair of each finding that has one.
func repairAll(t *testing.T, m *manager) {
	t.Helper()
	findings, err := newChecker(m).Examine(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Repair == nil {
			continue
		}
		if err := f.Repair(t.Context()); err != nil {
			t.Errorf("repair of %s: %v", f.Kind, err)
		}
	}
}

func TestChecker(t *testing.T) {
	dir := t.TempDir()
	p := &probe{}
	m := started(t, dir, p)
	for _, a := range []string{"c1:eth0", "c2:eth0", "c3:eth0"} {
		if _, err := m.Create(t.Context(), specOf(a), nil); err != nil {
			t.Fatal(err)
		}
	}
	if found := kinds(t, m, ""); found != nil {
		t.Fatalf("found %v on a healthy node", found)
	}
	records, err := m.ledger.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	half := records[0] // of c1, as if its commit had been lost
	half.Phase = ledger.Intent
	orphan := recordFor("c9", ledger.Committed, wallTime())
	orphan.Endpoint.ID = 99
	err = errors.Join(m.ledger.Put(half), m.ledger.PutTombstone(recordFor("c2", ledger.Tombstone, wallTime())), m.ledger.Put(orphan))
	if err != nil {
		t.Fatal(err)
	}
	p.detach = func() error { return errors.New("the kernel said no") }
	m.Delete(t.Context(), endpoint.Attachment{ContainerID: "c3", IfName: "eth0"}, endpoint.DeleteConfig{})
	if err := os.MkdirAll(m.cfg.deletionsPath(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: "c4", IfName: "eth0", Began: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.cfg.deletionsPath(), "x.bad"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"deletion-record-unreadable ", "deletion-record-waiting ", "deletion-unfinished c3:eth0",
		"record-differs c1:eth0", "record-missing c2:eth0", "record-orphan c9:eth0",
	}
	if got := kinds(t, m, ""); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := kinds(t, m, "c1:eth0"); !slices.Equal(got, []string{"record-differs c1:eth0"}) {
		t.Errorf("found %q of c1 alone", got)
	}
	p.detach = nil
	repairAll(t, m)
	if got := kinds(t, m, ""); !slices.Equal(got, []string{"deletion-record-unreadable ", "record-orphan c9:eth0"}) {
		t.Errorf("after the repair it finds %q", got)
	}
}

// TestCheckerConformance has a record lost, one changed, a deletion record, and what only a person can mend.
func TestCheckerConformance(t *testing.T) {
	doctortest.TestChecker(t, func(t *testing.T) doctor.Checker {
		m := started(t, t.TempDir(), &probe{})
		for _, a := range []string{"c1:eth0", "c2:eth0", "c3:eth0"} {
			if _, err := m.Create(t.Context(), specOf(a), nil); err != nil {
				t.Fatal(err)
			}
		}
		records, err := m.ledger.Attachments()
		if err != nil {
			t.Fatal(err)
		}
		changed, orphan := records[0], recordFor("c9", ledger.Committed, wallTime())
		changed.Phase, orphan.Endpoint.ID = ledger.Intent, 99
		err = errors.Join(
			m.ledger.Put(changed), m.ledger.Put(orphan), m.ledger.PutTombstone(recordFor("c2", ledger.Tombstone, wallTime())),
			deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: "c4", IfName: "eth0", Began: 1}),
			os.Remove(m.cfg.ledgerPath()),
		)
		if err != nil {
			t.Fatal(err)
		}
		return newChecker(m)
	})
}

func TestCheckerRetriesDeletionRecords(t *testing.T) {
	var tried atomic.Int32
	p := &probe{detach: func() error { tried.Add(1); return errors.New("the kernel said no") }}
	m := started(t, t.TempDir(), p)
	m.cfg.RetryInterval = time.Hour // the repairs alone
	for i := range 5 {
		a := fmt.Sprintf("c%d", i)
		if _, err := m.Create(t.Context(), specOf(a+":eth0"), nil); err != nil {
			t.Fatal(err)
		}
		if err := deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: a, IfName: "eth0"}); err != nil {
			t.Fatal(err)
		}
	}
	findings, err := newChecker(m).deletionRecords()
	if err != nil || len(findings) != 5 {
		t.Fatalf("found %+v, %v", findings, err)
	}
	for _, f := range findings {
		if err := f.Repair(t.Context()); err == nil || !strings.Contains(err.Error(), "the kernel said no") {
			t.Errorf("repair of %s: %v", f.Subject, err)
		}
	}
	if tried.Load() != 5 {
		t.Errorf("5 deletions were tried %d times", tried.Load())
	}
}

func TestResourcesLedger(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	lacking := func() (names []string) {
		for _, r := range newResources(m).Resources() {
			if r.Err != nil {
				names = append(names, r.Name)
			}
		}
		return names
	}
	if got := lacking(); got != nil {
		t.Errorf("%v are lacking on a healthy node", got)
	}
	if err := deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: "c4", IfName: "eth0", Began: 1}); err != nil {
		t.Fatal(err)
	}
	if got := lacking(); !slices.Equal(got, []string{"deletion-records"}) {
		t.Errorf("%v are lacking while a deletion waits", got)
	}
	full := errors.New("no space left on device")
	m.ledger = ledgertest.Memory{Disk: ledgertest.NewDisk(), Gate: func(string) error { return full }}
	if got := lacking(); !slices.Equal(got, []string{"ledger", "deletion-records"}) {
		t.Errorf("%v are lacking when the ledger cannot be written", got)
	}
	if _, err := m.Create(context.Background(), specOf("c1:eth0"), nil); !errors.Is(err, full) {
		t.Errorf("ADD: %v", err)
	}
}
