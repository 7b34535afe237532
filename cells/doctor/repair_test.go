package doctor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
)

// subjects are the subjects of the findings, in order.
func subjects(findings []v1.Finding) (all []string) {
	for _, f := range findings {
		all = append(all, f.Subject)
	}
	return all
}

func wantSubjects(t *testing.T, what string, findings []v1.Finding, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, subjects(findings), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// succeeded fails when an examination or a repair could not be made.
func succeeded(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		routes.Break("por3", "", nil)
		routes.Break("por1", "", func(context.Context) error { return errors.New("device busy") })
		routes.BreakManual("por2", "")
		routes.Break("por5", "", nil)
		d := newDoctor(t, doctor.Config{}, routes) // which repairs nothing on its own
		go func() {
			time.Sleep(500 * time.Millisecond)
			routes.Fix("por5")
			routes.Break("por4", "", nil)
		}()
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "por3")
		wantSubjects(t, "left", answer.Findings, "por1", "por2", "por4")
		if answer.Repaired[0].Outcome != "repaired" || answer.Findings[0].Outcome != "device busy" || answer.Findings[2].Outcome != "" {
			t.Errorf("answer %+v", answer)
		}

		routes.Fix("por2")
		routes.Break("por1", "", nil) // at once, though the last repair has failed a moment ago
		answer, err = d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "por1", "por4")
		wantSubjects(t, "left", answer.Findings)
	})
}

func TestRepairWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		routes.Break("por3", "", func(context.Context) error {
			go func() {
				time.Sleep(time.Millisecond)
				routes.Break("por3", "", nil)
			}()
			return nil
		})
		d := newDoctor(t, doctor.Config{}, routes)
		routes.Fail(func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired)
		wantSubjects(t, "left", answer.Findings, "por3")
	})
}

func TestRepairDuringPeriodicRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		repairs := 0
		routes.Break("por3", "", func(context.Context) error { repairs++; time.Sleep(time.Second); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), routes)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(59 * time.Second) // one periodic examination; the next one is in a second
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		time.Sleep(time.Hour)
		wantSubjects(t, "repaired", answer.Repaired, "por3")
		if repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}

func TestRepairNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		routes.BreakManual("por2", "")
		d, began := newDoctor(t, doctor.Config{}, routes), time.Now()
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "left", answer.Findings, "por2")
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

func TestRepairCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := doctortest.New("routes", "route-missing")
		routes.Break("por3", "", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		routes.Break("por5", "", nil)
		d := newDoctor(t, doctor.Config{}, routes)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := d.Repair(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if len(routes.Broken()) != 2 {
			t.Errorf("%v is broken", routes.Broken())
		}
	})
}
