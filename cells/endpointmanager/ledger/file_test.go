package ledger

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
	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

var equatable = cmpopts.EquateComparable(netip.Addr{})

func tempLedger(t *testing.T) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

func recordFor(container string, p Phase, at time.Time) Record {
	return Record{Phase: p, Endpoint: endpoint.Endpoint{ID: 1, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: container, IfName: "eth0"}}}, At: at, Boot: time.Duration(at.UnixNano())}
}

func TestReadAfterReopen(t *testing.T) {
	l, path := tempLedger(t)
	at := time.Unix(1000, 0).UTC()
	want := recordFor("c1", Committed, at)
	want.Endpoint.Host = endpoint.Interface{Name: "por1", Index: 3, MAC: endpoint.MAC{2, 1}}
	for _, rec := range []Record{recordFor("c1", Intent, at), want, recordFor("c2", Intent, at)} {
		if err := l.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.PutTombstone(recordFor("c2", Tombstone, at)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	got, err := l.Attachments()
	if diff := cmp.Diff([]Record{want}, got, equatable); err != nil || diff != "" {
		t.Errorf("attachments: %v\n%s", err, diff)
	}
	got, err = l.Tombstones()
	if diff := cmp.Diff([]Record{recordFor("c2", Tombstone, at)}, got, equatable); err != nil || diff != "" {
		t.Errorf("tombstones: %v\n%s", err, diff)
	}
}

func TestExpireOldTombstones(t *testing.T) {
	l, _ := tempLedger(t)
	for i, name := range []string{"oldest", "older", "new", "of another boot"} {
		if err := l.PutTombstone(recordFor(name, Tombstone, time.Unix(int64(1000*i), 0))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Expire(2000*time.Second, 2999*time.Second); err != nil {
		t.Fatal(err)
	}
	left, err := l.Tombstones()
	if err != nil || len(left) != 1 || left[0].Endpoint.Spec.Attachment.ContainerID != "new" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOpenTwice(t *testing.T) {
	_, path := tempLedger(t)
	_, err := Open(path)
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("error %v", err)
	}
}

// TestOpenTruncated cuts the file at every page and in the middle of each.
func TestOpenTruncated(t *testing.T) {
	l, path := tempLedger(t)
	for i := range 200 {
		if err := l.Put(recordFor("c"+strings.Repeat("x", i), Committed, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
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
		got, err := Open(path)
		if err == nil { // the pages that are missing were free: nothing is lost
			records, err := got.Attachments()
			if err != nil || len(records) != 200 {
				t.Errorf("cut at %d: opened with %d records, %v", size, len(records), err)
			}
			_ = got.Close()
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

// A node that was quiet for longer than tombstones are kept forgets all of them at once: more than a page of the file
// holds.
func TestExpireAll(t *testing.T) {
	for name, window := range map[string][2]time.Duration{
		"they are too old": {3000 * time.Second, 4000 * time.Second}, "they are of another boot": {0, 500 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := tempLedger(t)
			for i := range 100 {
				if err := l.PutTombstone(recordFor(fmt.Sprintf("c%d", i), Tombstone, time.Unix(1000+int64(i), 0))); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.RecordDeletion(DeletionNote{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Boot: 1000 * time.Second}); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- l.Expire(window[0], window[1]) }()
			select {
			case err := <-done:
				left, readErr := l.Tombstones()
				notes, notesErr := l.DeletionNotes()
				if err := errors.Join(err, readErr, notesErr); err != nil || len(left)+len(notes) > 0 {
					t.Errorf("error %v, left %d tombstones and %d notes", err, len(left), len(notes))
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}

func TestReadUnknownFields(t *testing.T) {
	l, path := tempLedger(t)
	err := l.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("forecasts-v1"))
		record := `{"Phase":"committed","Colour":"red","Endpoint":{"ID":1,"Shape":"round","Spec":{"Attachment":{"ContainerID":"c1","IfName":"eth0"}}}}`
		return errors.Join(err, tx.Bucket(attachmentsBucket).Put([]byte("c1:eth0"), []byte(record)))
	})
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	l, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if records, err := l.Attachments(); err != nil || len(records) != 1 {
		t.Errorf("read %v, %v", records, err)
	}
}

func TestReadRecordUnderOtherKey(t *testing.T) {
	l, _ := tempLedger(t)
	err := l.update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("attachments-v1")).Put([]byte("c2:eth0"), []byte(`{"Phase":"committed","Endpoint":{"ID":1,"Spec":{"Attachment":{"ContainerID":"c1","IfName":"eth0"}}}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Attachments(); fault.KindOf(err) != fault.Internal {
		t.Errorf("error %v, want damage", err)
	}
}

// TestPutUnnamed: the key is the same as in earlier agents, whatever the text of the attachment is.
func TestPutUnnamed(t *testing.T) {
	l, _ := tempLedger(t)
	rec := recordFor("link/48", Held, time.Unix(1000, 0))
	rec.Endpoint.Spec.Attachment = endpoint.Unnamed("link/48")
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	err := l.db.View(func(tx *bbolt.Tx) error {
		if key, _ := tx.Bucket(attachmentsBucket).Cursor().First(); string(key) != "link/48:/unknown" {
			t.Errorf("the key is %q", key)
		}
		return nil
	})
	if list, readErr := l.Attachments(); err != nil || readErr != nil || len(list) != 1 {
		t.Errorf("read %v, %v, %v", list, err, readErr)
	}
}
