package store

import (
	"path/filepath"
	"testing"
	"testing/synctest"
)

// TestTailWaitsForWriter: what is written and not sent yet may be in the list that the watch goes on from.
func TestTailWaitsForWriter(t *testing.T) {
	e := newEmbedded(filepath.Join(t.TempDir(), "store.db"))
	synctest.Test(t, func(t *testing.T) {
		e.writing = make(chan struct{}, 1)
		if err := e.lock(t.Context()); err != nil {
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
		e.unlock()
		synctest.Wait()
		if !begun {
			t.Error("it has not begun")
		}
	})
}
