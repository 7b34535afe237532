package watchdog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/proxy/watchdog"
)

// TestStop: check is called until Stop, which waits for a call.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := watchdog.Start(time.Second, func() {
			calls++
			time.Sleep(time.Second / 2)
		})
		time.Sleep(4*time.Second + time.Second/4) // the third call is at 4 s: pauses are between calls
		w.Stop()
		if calls != 3 {
			t.Errorf("%d calls in 4.25 s, want 3", calls)
		}
		time.Sleep(10 * time.Second)
		if calls != 3 {
			t.Errorf("called %d times after Stop", calls-3)
		}
	})
}
