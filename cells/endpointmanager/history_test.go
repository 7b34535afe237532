package endpointmanager

import (
	"errors"
	"log/slog"
	"testing"
	"time"
)

// TestALateADDMeetsTheNoteOrTheDEL: whoever gets a worker must have seen every deletion that has been answered.
func TestALateADDMeetsTheNoteOrTheDEL(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	m := build(Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Table: NewTable()})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop(t.Context()) }()
	late := Spec{Attachment: Attachment{"c1", "eth0"}, Began: time.Nanosecond}
	m.Delete(t.Context(), late.Attachment, DeleteConfig{})
	// An ADD that was about to claim its worker when the DEL came.
	if _, _, _, err := m.claim(late, func(*worker) {}); !errors.Is(err, ErrDeleted) {
		t.Errorf("error %v, want ErrDeleted", err)
	}
}
