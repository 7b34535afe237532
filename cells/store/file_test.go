package store_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/internal/fault"
)

var quiet = slog.New(slog.DiscardHandler)

func inFolder(t testing.TB) (cfg store.Config, path string) {
	t.Helper()
	cfg = store.DefaultConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "state")
	return cfg, filepath.Join(cfg.Dir, "store.db")
}

// starts returns how a start of the configuration fails.
func starts(t testing.TB, cfg store.Config) error {
	t.Helper()
	s, err := store.New(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Start(t.Context()); err == nil {
		t.Cleanup(func() { _ = s.Stop(t.Context()) })
	}
	return err
}

func TestStartFileInUse(t *testing.T) {
	t.Parallel()
	cfg, _ := inFolder(t)
	storetest.Open(t, cfg)
	if err := starts(t, cfg); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("error %v", err)
	}
}

// filled returns the file of a store that was stopped.
func filled(t testing.TB, entries int) (store.Config, string) {
	t.Helper()
	cfg, path := inFolder(t)
	s := storetest.Open(t, cfg)
	for i := range entries {
		if err := s.Create(t.Context(), "e/"+strings.Repeat("x", i+1), []byte(strings.Repeat("v", 300))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cfg, path
}

// TestStartTruncatedFile cuts the file at every page and in the middle of each.
func TestStartTruncatedFile(t *testing.T) {
	cfg, path := filled(t, 100)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for size := 0; size < len(whole); size += 2048 {
		write(t, path, string(whole[:size]))
		s, err := store.New(cfg, quiet)
		if err == nil {
			err = s.Start(t.Context())
		}
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "is damaged") {
				t.Errorf("cut at %d: error %v", size, err)
			}
			continue
		}
		if entries := storetest.List(t, s, ""); len(entries) != 100 { // the pages that are missing were free: nothing is lost
			t.Errorf("cut at %d: opened with %d entries", size, len(entries))
		}
		_ = s.Stop(t.Context())
	}
	if refused < 5 {
		t.Errorf("only %d of %d lengths were refused", refused, len(whole)/2048)
	}
}

func TestStartWrongContent(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*bbolt.Tx) error
		want   string
	}{
		"entries of another version": {func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("entries-v1")); return err }, "another version"},
		"a bucket is missing":        {func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("meta-v1")) }, "is damaged"},
		"the revision is missing":    {func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta-v1")).Delete([]byte("revision")) }, "is damaged"},
		"something else of a later version": {func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("indexes-v2"))
			return err
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, path := filled(t, 3)
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
			err = starts(t, cfg)
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
