package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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

func TestLoopRepairsAtTheSecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		d := newDoctor(t, doctor.DefaultConfig(), lamps)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		lamps.Break("hall", "", nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(lamps.Broken()) != 1 || lamps.Looks() != 2 {
			t.Errorf("after 59 s: %v, %d looks, want one examination", lamps.Broken(), lamps.Looks())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(lamps.Broken()) != 0 {
			t.Errorf("after a minute: %v is broken", lamps.Broken())
		}
	})
}

// TestWhatLastsAMomentIsNoFinding: a plugin makes a link and then calls the agent, and nobody can tell that link from one
// that was left.
func TestWhatLastsAMomentIsNoFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		d := newDoctor(t, doctor.Config{}, lamps)
		lamps.Break("hall", "", nil)
		lamps.Break("cellar", "", nil)
		go func() {
			time.Sleep(50 * time.Millisecond)
			lamps.Mend("hall")
			lamps.Break("attic", "", nil) // which is new at the second look
		}()
		answer, err := d.Examine(t.Context(), doctor.Scope{})
		if err != nil || len(answer.Findings) != 1 || answer.Findings[0].Subject != "cellar" {
			t.Errorf("found %+v, %v, want the cellar", answer.Findings, err)
		}
	})
}

func TestSecondLookOfWhoAsksIsRepairedAtOnceAndWithoutAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		d := newDoctor(t, doctor.Config{Repair: true}, lamps)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		lamps.Break("hall", "", nil)
		for range 2 {
			time.Sleep(time.Hour)
			if _, err := d.Examine(t.Context(), doctor.Scope{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(lamps.Broken()) != 0 || lamps.Looks() != 4 {
			t.Errorf("%v is broken after %d looks", lamps.Broken(), lamps.Looks())
		}
	})
}

func TestOneExaminationAtATimeAndNobodyWaitsLongerThanHeWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		running := 0
		lamps.Fail(func(context.Context) error {
			if running++; running > 1 {
				t.Error("two examinations at once")
			}
			time.Sleep(time.Second)
			running--
			return nil
		})
		d := newDoctor(t, doctor.Config{}, lamps)
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

func TestRepairHasATimeoutAndAStopEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		began, took := time.Time{}, []time.Duration{}
		lamps.Break("hall", "", func(ctx context.Context) error {
			began = time.Now()
			<-ctx.Done()
			took = append(took, time.Since(began))
			return ctx.Err()
		})
		d := newDoctor(t, doctor.DefaultConfig(), lamps)
		d.Start()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(took) != 1 || took[0] != 30*time.Second {
			t.Fatalf("repairs ended after %v, want one after 30s", took)
		}
		time.Sleep(31 * time.Second) // in the next repair
		if err := d.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if len(took) != 2 || took[1] > 10*time.Second {
			t.Errorf("repairs ended after %v, want the second soon", took)
		}
	})
}

func TestStopWaitsForACheckerThatIgnoresItAndNoLongerThanToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		lamps.Fail(func(context.Context) error { time.Sleep(10 * time.Second); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), lamps)
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

func TestDoctorThatNeverStartedStops(t *testing.T) {
	if err := newDoctor(t, doctor.DefaultConfig()).Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestKindsAreNamedOnce(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	_, err := doctor.New(doctor.DefaultConfig(), log, doctortest.New("lamps", "broken"), doctortest.New("cables", "broken"))
	if err == nil || !strings.Contains(err.Error(), `kind "broken" of lamps: want a name that "cables" has not taken`) {
		t.Errorf("error %v", err)
	}
	_, err = doctor.New(doctor.Config{Interval: time.Millisecond}, log)
	if err == nil || !strings.Contains(err.Error(), "doctor-interval 1ms: want 0, or at least 1s") {
		t.Errorf("error %v", err)
	}
}
