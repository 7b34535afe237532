package endpointmanager

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/internal/fault"
)

var equatable = cmpopts.EquateComparable(netip.Addr{})

func tempLedger(t *testing.T) (*ledgerFile, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l, err := openLedgerFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.close() })
	return l, path
}

func recordFor(container string, p phase, at time.Time) record {
	return record{Phase: p, Endpoint: Endpoint{ID: 1, Spec: Spec{Attachment: Attachment{container, "eth0"}}}, At: at, Boot: time.Duration(at.UnixNano())}
}

func TestALedgerTellsWhatWasWritten(t *testing.T) {
	l, path := tempLedger(t)
	at := time.Unix(1000, 0).UTC()
	want := recordFor("c1", committed, at)
	want.Endpoint.Host = Interface{Name: "por1", Index: 3, MAC: MAC{2, 1}}
	for _, rec := range []record{recordFor("c1", intent, at), want, recordFor("c2", intent, at)} {
		if err := l.put(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.bury(recordFor("c2", buried, at)); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l, err := openLedgerFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	got, err := l.attachments()
	if diff := cmp.Diff([]record{want}, got, equatable); err != nil || diff != "" {
		t.Errorf("attachments: %v\n%s", err, diff)
	}
	got, err = l.tombstones()
	if diff := cmp.Diff([]record{recordFor("c2", buried, at)}, got, equatable); err != nil || diff != "" {
		t.Errorf("tombstones: %v\n%s", err, diff)
	}
}

func TestOnlyOldTombstonesExpire(t *testing.T) {
	l, _ := tempLedger(t)
	for i, name := range []string{"oldest", "older", "new", "of another boot"} {
		if err := l.bury(recordFor(name, buried, time.Unix(int64(1000*i), 0))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.expire(2000*time.Second, 2999*time.Second); err != nil {
		t.Fatal(err)
	}
	left, err := l.tombstones()
	if err != nil || len(left) != 1 || left[0].Endpoint.Spec.Attachment.ContainerID != "new" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestASecondOpenerIsToldThatTheFirstIsThere(t *testing.T) {
	_, path := tempLedger(t)
	_, err := openLedgerFile(path)
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("error %v", err)
	}
}

// TestATruncatedLedgerIsRefusedAtAnyLength cuts the file at every page and in the middle of each.
func TestATruncatedLedgerIsRefusedAtAnyLength(t *testing.T) {
	l, path := tempLedger(t)
	for i := range 200 {
		if err := l.put(recordFor("c"+strings.Repeat("x", i), committed, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for size := 2048; size < len(whole); size += 2048 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := openLedgerFile(path)
		if err == nil { // the pages that are missing were free: nothing is lost
			records, err := got.attachments()
			if err != nil || len(records) != 200 {
				t.Errorf("cut at %d: opened with %d records, %v", size, len(records), err)
			}
			_ = got.close()
			continue
		}
		refused++
		if !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("cut at %d: error %v", size, err)
		}
	}
	if refused < 10 {
		t.Errorf("only %d of %d lengths were refused", refused, len(whole)/2048)
	}
}

// A node that was quiet for longer than tombstones are kept forgets all of them at once: more than a page of the file holds.
func TestALedgerForgetsAllTombstonesAtOnce(t *testing.T) {
	for name, window := range map[string][2]time.Duration{
		"they are too old": {3000 * time.Second, 4000 * time.Second}, "they are of another boot": {0, 500 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := tempLedger(t)
			for i := range 100 {
				if err := l.bury(recordFor(fmt.Sprintf("c%d", i), buried, time.Unix(1000+int64(i), 0))); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.note(note{Attachment: Attachment{"c1", "eth0"}, Boot: 1000 * time.Second}); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- l.expire(window[0], window[1]) }()
			select {
			case err := <-done:
				left, readErr := l.tombstones()
				notes, notesErr := l.notes()
				if err := errors.Join(err, readErr, notesErr); err != nil || len(left)+len(notes) > 0 {
					t.Errorf("error %v, left %d tombstones and %d notes", err, len(left), len(notes))
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}
