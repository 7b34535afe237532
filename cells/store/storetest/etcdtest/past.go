package etcdtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Save keeps what it has now for SetBack.
func (s *Server) Save(t testing.TB) {
	t.Helper()
	s.whileStopped(t, func() error {
		if err := os.RemoveAll(s.saved()); err != nil {
			return err
		}
		return os.CopyFS(s.saved(), os.DirFS(s.data()))
	})
}

// SetBack has it know what it knew at Save, as when it is restored from a backup: revisions are given a second time.
func (s *Server) SetBack(t testing.TB) {
	t.Helper()
	s.whileStopped(t, func() error {
		if err := os.RemoveAll(s.data()); err != nil {
			return err
		}
		return os.CopyFS(s.data(), os.DirFS(s.saved()))
	})
}

// Wipe has it forget everything: it is a new one.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	s.whileStopped(t, func() error { return os.RemoveAll(s.data()) })
}

func (s *Server) data() string  { return filepath.Join(s.dir, "data") }
func (s *Server) saved() string { return filepath.Join(s.dir, "saved") }

func (s *Server) whileStopped(t testing.TB, do func() error) {
	t.Helper()
	s.Stop()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
}
