package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
)

func newDoctor(t *testing.T, cfg doctor.Config, checkers ...doctor.Checker) *doctor.Doctor {
	t.Helper()
	d, err := doctor.New(cfg, slog.New(slog.DiscardHandler), checkers...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPeriodicRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		d := newDoctor(t, doctor.DefaultConfig(), routes)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		routes.Break("por3", "", nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(routes.Broken()) != 1 || routes.Calls() != 2 {
			t.Errorf("after 59 s: %v, %d calls, want one examination", routes.Broken(), routes.Calls())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(routes.Broken()) != 0 {
			t.Errorf("after a minute: %v is broken", routes.Broken())
		}
	})
}

// TestExaminePassingState: a plugin makes a link and then calls the agent, and that link looks like one
// that was left.
func TestExaminePassingState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		d := newDoctor(t, doctor.Config{}, routes)
		routes.Break("por3", "", nil)
		routes.Break("por2", "", nil)
		go func() {
			time.Sleep(50 * time.Millisecond)
			routes.Fix("por3")
			routes.Break("por1", "", nil) // which is new at the second call
		}()
		answer, err := d.Examine(t.Context(), doctor.Scope{})
		if err != nil || len(answer.Findings) != 1 || answer.Findings[0].Subject != "por2" {
			t.Errorf("found %+v, %v, want the por2", answer.Findings, err)
		}
	})
}

func TestExamineTwiceRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		d := newDoctor(t, doctor.Config{Repair: true}, routes)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		routes.Break("por3", "", nil)
		for range 2 {
			time.Sleep(time.Hour)
			if _, err := d.Examine(t.Context(), doctor.Scope{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(routes.Broken()) != 0 || routes.Calls() != 4 {
			t.Errorf("%v is broken after %d calls", routes.Broken(), routes.Calls())
		}
	})
}

func TestExamineConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		running := 0
		routes.Fail(func(context.Context) error {
			if running++; running > 1 {
				t.Error("two examinations at once")
			}
			time.Sleep(time.Second)
			running--
			return nil
		})
		d := newDoctor(t, doctor.Config{}, routes)
		for range 3 {
			go func() { _, _ = d.Examine(context.Background(), doctor.Scope{}) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := d.Examine(ctx, doctor.Scope{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		time.Sleep(5 * time.Second)
	})
}

func TestRepairTimeoutAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		var begun atomic.Int32
		began, took := time.Time{}, []time.Duration{}
		routes.Break("por3", "", func(ctx context.Context) error {
			begun.Add(1)
			began = time.Now()
			<-ctx.Done()
			took = append(took, time.Since(began))
			return ctx.Err()
		})
		d := newDoctor(t, doctor.DefaultConfig(), routes)
		d.Start()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(took) != 1 || took[0] != 30*time.Second {
			t.Fatalf("repairs ended after %v, want one after 30s", took)
		}
		for begun.Load() < 2 { // in the next repair
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if err := d.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if len(took) != 2 || took[1] > 10*time.Second {
			t.Errorf("repairs ended after %v, want the second soon", took)
		}
	})
}

func TestStopWaitsForChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		routes.Fail(func(context.Context) error { time.Sleep(10 * time.Second); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), routes)
		d.Start()
		time.Sleep(31 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second: %v", err)
		}
		if err := d.Stop(t.Context()); err != nil {
			t.Errorf("as long as it takes: %v", err)
		}
	})
}

func TestStopWithoutStart(t *testing.T) {
	if err := newDoctor(t, doctor.DefaultConfig()).Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewDuplicateKind(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	_, err := doctor.New(doctor.DefaultConfig(), log, doctortest.New("routes", "broken"), doctortest.New("links", "broken"))
	if err == nil || !strings.Contains(err.Error(), `kind "broken" of routes: want a name that "links" has not taken`) {
		t.Errorf("error %v", err)
	}
	_, err = doctor.New(doctor.Config{Interval: time.Millisecond}, log)
	if err == nil || !strings.Contains(err.Error(), "doctor-interval 1ms: want 0, or at least 1s") {
		t.Errorf("error %v", err)
	}
}
