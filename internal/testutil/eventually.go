package testutil

import (
	"testing"
	"time"
)

// Eventually calls condition until it returns nil, and fails the test with its last error after the time.
func Eventually(t testing.TB, timeout time.Duration, condition func() error) {
	t.Helper()
	if err := poll(timeout, condition); err != nil {
		t.Fatalf("not so within %v: %v", timeout, err)
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
