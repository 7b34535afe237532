package testutil

import (
	"testing"
	"time"
)

// Patience bounds whatever a test waits for that must come. It is generous, as emulated and busy machines are slow, and a test
// that passes does not use it up. How fast something is, make bench says.
const Patience = 2 * time.Minute

// Eventually calls condition until it returns nil, and fails the test with its last error after Patience.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	if err := poll(Patience, condition); err != nil {
		t.Fatalf("not so within %v: %v", Patience, err)
	}
}

// poll returns nil as soon as condition does, or its last error.
func poll(timeout time.Duration, condition func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}
