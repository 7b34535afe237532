package store

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"

	"porin.dev/porin/internal/boottime"
)

// TestAWatchBeginsBehindWhoWrites: what is written and not told yet may be in the list that the watch goes on from.
func TestAWatchBeginsBehindWhoWrites(t *testing.T) {
	e := newEmbedded(filepath.Join(t.TempDir(), "store.db"), slog.New(slog.DiscardHandler), boottime.Now)
	synctest.Test(t, func(t *testing.T) {
		e.turn = make(chan struct{}, 1)
		if err := e.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := false
		go func() {
			e.tail(t.Context(), "", 1)
			begun = true
		}()
		synctest.Wait()
		if begun {
			t.Error("it has begun while somebody writes")
		}
		e.giveBack()
		synctest.Wait()
		if !begun {
			t.Error("it has not begun")
		}
	})
}
