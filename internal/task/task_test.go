package task_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"porin.dev/porin/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// started has the task run until the end of the test.
func started(t *testing.T, one *task.Task, after <-chan struct{}) {
	t.Helper()
	one.Start(after)
	t.Cleanup(func() {
		select {
		case err := <-one.Failed():
			t.Errorf("the task failed: %v", err)
		default:
		}
		if err := one.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		one := task.Every(quiet, task.Round{Name: "x", Interval: time.Second, Run: func(context.Context) error { runs++; return nil }})
		started(t, one, nil)
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		status := one.Status()
		if runs != 4 || status.Runs != 4 || status.Failures != 0 || time.Until(status.Next) != 500*time.Millisecond {
			t.Errorf("after 3.5 s: %d runs, status %+v, want 4, the next in 500 ms", runs, status)
		}
		one.Trigger()
		synctest.Wait()
		if runs != 5 {
			t.Errorf("after a trigger: %d runs, want 5", runs)
		}
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		one := task.Retry(quiet, "x", time.Second, func(ctx context.Context) error {
			if at = append(at, time.Since(began)); len(at) < 3 {
				return errors.New("the watch has ended")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		started(t, one, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(at, []time.Duration{0, time.Second, 2 * time.Second}) || one.HasRounds() {
			t.Errorf("runs at %v, rounds %t", at, one.HasRounds())
		}
	})
}

func TestRetryBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began, broken := time.Now(), true
		one := task.Every(quiet, task.Round{
			Name: "x", Interval: time.Minute, Retry: time.Second, MaxRetry: 4 * time.Second,
			Run: func(context.Context) error {
				at = append(at, time.Since(began))
				if broken {
					return errors.New("no")
				}
				return nil
			},
		})
		started(t, one, nil)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 11 * time.Second}
		if len(at) != len(want) || at[4] != want[4] || at[2] != want[2] {
			t.Errorf("tried at %v, want %v", at, want)
		}
		if status := one.Status(); status.Failures != 5 || status.Err == nil {
			t.Errorf("status %+v, want 5 failures", status)
		}
		broken = false
		one.Trigger()
		synctest.Wait()
		if status := one.Status(); status.Failures != 0 || status.Err != nil || time.Until(status.Next) != time.Minute {
			t.Errorf("after a success: status %+v", status)
		}
	})
}

func TestStartAfterBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, after := 0, make(chan struct{})
		one := task.Every(quiet, task.Round{Name: "x", Run: func(context.Context) error { runs++; return nil }})
		started(t, one, after)
		one.Trigger()
		synctest.Wait()
		if runs != 0 {
			t.Error("it ran before the barrier was open")
		}
		close(after)
		synctest.Wait()
		if runs != 1 {
			t.Errorf("%d runs, want 1: the trigger was lost", runs)
		}
	})
}

func TestStopBeforeBarrier(t *testing.T) {
	one := task.Forever(quiet, "x", func(context.Context) error { return errors.New("it ran") })
	one.Start(make(chan struct{}))
	if err := one.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestForeverEnds(t *testing.T) {
	no := errors.New("no")
	for name, end := range map[string]error{"with an error": no, "without one": nil} {
		one := task.Forever(quiet, "x", func(context.Context) error { return end })
		one.Start(nil)
		if err := <-one.Failed(); end != nil && !errors.Is(err, end) || err == nil {
			t.Errorf("it ends %s: %v", name, err)
		}
		if err := one.Stop(t.Context()); err != nil || one.Status().Err == nil {
			t.Errorf("it ends %s: stop %v, status %+v", name, err, one.Status())
		}
	}
}

func TestStopWaits(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	one := task.Forever(quiet, "x", func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		<-leave
		return nil
	})
	one.Start(nil)
	<-entered
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.Stop(short); !errors.Is(err, context.Canceled) {
		t.Errorf("stop returned %v while the task runs", err)
	}
	close(leave)
	if err := one.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
