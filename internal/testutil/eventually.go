package testutil

import (
	"testing"
	"time"
)

// Patience bounds whatever a test waits for that must come. It is generous, as emulated and busy machines are slow, and
// a test that passes does not use it up. How fast something is, make bench says.
const Patience = 2 * time.Minute

// Eventually calls condition until it returns nil, and fails the test with its last error after Patience.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	if err := Poll(Patience, condition); err != nil {
		t.Fatalf("not so within %v: %v", Patience, err)
	}
}

// How long Poll pauses: a share of the time that it has waited, so that a long wait leaves the processor to others.
const (
	shortestPause, longestPause = 2 * time.Millisecond, 50 * time.Millisecond
	pauseShare                  = 20
)

// Poll returns nil soon after condition does, or its last error.
func Poll(timeout time.Duration, condition func() error) error {
	for began := time.Now(); ; {
		err := condition()
		waited := time.Since(began)
		if err == nil || waited >= timeout {
			return err
		}
		time.Sleep(min(max(waited/pauseShare, shortestPause), longestPause, timeout-waited))
	}
}
