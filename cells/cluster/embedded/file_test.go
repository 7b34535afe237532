package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

// starts returns how a start of the store in the folder fails, and its nodes if it does not.
func starts(t *testing.T, dir string) (nodes int, err error) {
	t.Helper()
	s := embedded.New(dir, slog.New(slog.DiscardHandler))
	if err := s.Start(t.Context()); err != nil {
		return 0, err
	}
	defer func() { _ = s.Stop(context.Background()) }()
	for range s.Backend().Nodes.All(t.Context()) {
		nodes++
	}
	return nodes, nil
}

// filled returns the folder of a store that was stopped.
func filled(t *testing.T, nodes int) (dir, path string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	s := embeddedtest.Open(t, dir)
	for range nodes {
		node := clustertest.NodeNamed("one")
		node.MachineID = strings.Repeat("x", 300)
		if _, err := s.Backend().Nodes.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "store.db")
}

func TestStartInUse(t *testing.T) {
	dir := t.TempDir()
	embeddedtest.Open(t, dir)
	if _, err := starts(t, dir); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("error %v", err)
	}
}

// TestStartTruncated cuts the file at every page and in the middle of each.
func TestStartTruncated(t *testing.T) {
	dir, path := filled(t, 100)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for size := 0; size < len(whole); size += 2048 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		nodes, err := starts(t, dir)
		switch {
		case err != nil && !strings.Contains(err.Error(), "is damaged"):
			t.Errorf("cut at %d: error %v", size, err)
		case err != nil:
			refused++
		case nodes != 100: // the pages that are missing were free: nothing is lost
			t.Errorf("cut at %d: opened with %d nodes", size, nodes)
		}
	}
	if refused < 5 {
		t.Errorf("only %d of %d lengths were refused", refused, len(whole)/2048)
	}
}

func TestStartWrongContent(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*bbolt.Tx) error
		damaged bool
	}{
		"a bucket is missing":     {func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("meta-v1")) }, true},
		"the revision is missing": {func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta-v1")).Delete([]byte("revision")) }, true},
		"a later version's index": {func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("indexes-v2")); return err }, false},
	} {
		dir, path := filled(t, 3)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(test.change); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := starts(t, dir); (err != nil) != test.damaged || err != nil && !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s: error %v, want one %t", name, err, test.damaged)
		}
	}
}

// TestFullDisk fills the disk of the store and empties it again.
func TestFullDisk(t *testing.T) {
	testutil.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := embeddedtest.Open(t, dir)
	b, filler := s.Backend(), filepath.Join(dir, "filler")
	first, err := b.Nodes.Create(t.Context(), clustertest.NodeNamed("first"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filler, make([]byte, 256<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	large := clustertest.NodeNamed("large")
	large.MachineID = strings.Repeat("x", 64<<10) // more than the file has room for
	_, err = b.Nodes.Create(t.Context(), large)
	if !errors.Is(err, cluster.ErrUnavailable) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Errorf("create on a full disk: error %v", err)
	}
	if got, err := b.Nodes.Get(t.Context(), first.ID); err != nil || got != first {
		t.Errorf("get on a full disk: %+v, error %v", got, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Nodes.Create(t.Context(), large); err != nil {
		t.Errorf("create with room again: %v", err)
	}
}

// TestReadOnlyFolder: the start says which file it cannot open.
func TestReadOnlyFolder(t *testing.T) {
	testutil.Root(t)
	dir, path := filled(t, 1)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := starts(t, dir); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), path) || !errors.Is(err, unix.EROFS) {
		t.Errorf("error %v", err)
	}
}
