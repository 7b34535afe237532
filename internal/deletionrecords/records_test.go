package deletionrecords_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/internal/deletionrecords"
)

func record(id string, began int64) deletionrecords.Record {
	return deletionrecords.Record{ContainerID: id, IfName: "eth0", Network: "porin", Began: began}
}

func put(t *testing.T, dir string, records ...deletionrecords.Record) {
	t.Helper()
	for _, r := range records {
		if err := deletionrecords.Put(dir, r); err != nil {
			t.Fatal(err)
		}
	}
}

// each is a callback of Drain that takes one record at a time.
func each(remove func(deletionrecords.Record) error) func([]deletionrecords.Record) []error {
	return func(records []deletionrecords.Record) (errs []error) {
		for _, r := range records {
			errs = append(errs, remove(r))
		}
		return errs
	}
}

// drained are the records that a Drain hands over.
func drained(t *testing.T, dir string) (records []deletionrecords.Record) {
	t.Helper()
	done, err := deletionrecords.Drain(dir, each(func(r deletionrecords.Record) error {
		records = append(records, r)
		return nil
	}))
	if err != nil || done != len(records) {
		t.Fatalf("Drain = %d, %v, want %d", done, err, len(records))
	}
	return records
}

func TestDrainOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "deletions")
	put(t, dir, record("c", 3), record("a", 1), record("b", 2), record("a", 1))
	want := []deletionrecords.Record{record("a", 1), record("b", 2), record("c", 3)}
	if diff := cmp.Diff(want, drained(t, dir)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if again := drained(t, dir); len(again) != 0 {
		t.Errorf("a second Drain has %v", again)
	}
}

func TestDrainMissingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deletions")
	if got := drained(t, dir); len(got) != 0 {
		t.Errorf("records = %v", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Drain made the folder: %v", err)
	}
}

func TestDrainCallbackFails(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, record("a", 1), record("b", 2))
	done, err := deletionrecords.Drain(dir, each(func(r deletionrecords.Record) error {
		if r.ContainerID == "a" {
			return errors.New("the kernel is busy")
		}
		return nil
	}))
	if done != 1 || err == nil || !strings.Contains(err.Error(), "deletion of a:eth0: the kernel is busy") {
		t.Errorf("Drain = %d, %v", done, err)
	}
	if diff := cmp.Diff([]deletionrecords.Record{record("a", 1)}, drained(t, dir)); diff != "" {
		t.Errorf("records left (-want +got):\n%s", diff)
	}
}

func TestDrainUnreadable(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"1.delete": "", "2.delete": "{", "3.delete": `{"ifname":"eth0"}`,
		"4.delete": `{"containerID":"` + strings.Repeat("x", 4<<20) + `"}`,
		"5.tmp":    `{"containerID":"half`, "other": "not ours",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, record("a", 1))
	done, err := deletionrecords.Drain(dir, each(func(deletionrecords.Record) error { return nil }))
	if done != 1 || err == nil || strings.Count(err.Error(), "unreadable") != 4 {
		t.Errorf("Drain = %d, %v, want 1 and four complaints", done, err)
	}
	var names []string
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		names = append(names, f.Name())
	}
	if diff := cmp.Diff([]string{"1.bad", "2.bad", "3.bad", "4.bad", "lock", "other"}, names); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	put(t, dir, record("b", 1))
	waiting, unreadable, err := deletionrecords.Look(dir)
	if len(waiting) != 1 || len(unreadable) != 4 || err != nil {
		t.Errorf("Look = %v, %v, %v, want one that waits and four that are unreadable", waiting, unreadable, err)
	}
}

func TestPutDuringDrain(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, record("a", 1))
	_, err := deletionrecords.Drain(dir, each(func(deletionrecords.Record) error {
		w, err := deletionrecords.BeginUntil(dir, time.Now())
		if err == nil {
			w.Close()
			t.Error("the lock was free during Drain")
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
}

func TestPutConcurrently(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for i := range 300 {
		writers.Go(func() {
			if err := deletionrecords.Put(dir, record(fmt.Sprintf("c%03d", i), int64(i))); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got := drained(t, dir); len(got) != 300 {
		t.Errorf("%d records, want 300", len(got))
	}
}

func TestPutInvalid(t *testing.T) {
	if err := deletionrecords.Put(t.TempDir(), deletionrecords.Record{}); err == nil {
		t.Error("it was accepted")
	}
}

func TestPutFolderFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deletionrecords.Put(filepath.Join(file, "deletions"), record("a", 1)); err == nil {
		t.Error("it was accepted")
	}
}
