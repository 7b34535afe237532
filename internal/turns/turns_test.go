package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/internal/turns"
)

func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := turns.New()
		end, err := turn.Begin(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turn.Begin(soon, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a turn that another one has: %v", err)
		}
		endOther, err := turn.Begin(t.Context(), 2)
		if err != nil {
			t.Fatalf("the turn of another key: %v", err)
		}
		endOther()
		time.AfterFunc(time.Second, end)
		began := time.Now()
		end, err = turn.Begin(t.Context(), 1)
		if err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want a turn when the one before has ended", err, time.Since(began))
		}
		end()
	})
}
