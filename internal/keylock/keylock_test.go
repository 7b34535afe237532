package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[uint16]
		release, err := locks.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := locks.Acquire(soon, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that is held: %v", err)
		}
		for key := range uint16(1000) {
			if key == 1 {
				continue
			}
			releaseOther, err := locks.Acquire(t.Context(), key)
			if err != nil {
				t.Fatalf("the lock of another key: %v", err)
			}
			defer releaseOther()
		}
		time.AfterFunc(time.Second, release)
		began := time.Now()
		release, err = locks.Acquire(t.Context(), 1)
		if err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want the lock when it is released", err, time.Since(began))
		}
		release()
		synctest.Wait() // for the first release, too
		if _, ok := locks.locks[1]; ok {
			t.Error("a lock is left that nobody uses")
		}
	})
}
