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

// subjects are those of the findings, in order.
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

func TestWhatTwoLooksAgreeOnIsRepairedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		lamps.Break("hall", "", nil)
		lamps.Break("attic", "", func(context.Context) error { return errors.New("no ladder") })
		lamps.BreakForGood("cellar", "")
		lamps.Break("stairs", "", nil)
		d := newDoctor(t, doctor.Config{}, lamps) // which repairs nothing on its own
		go func() {
			time.Sleep(500 * time.Millisecond)
			lamps.Mend("stairs")
			lamps.Break("porch", "", nil)
		}()
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "hall")
		wantSubjects(t, "left", answer.Findings, "attic", "cellar", "porch")
		if answer.Repaired[0].Outcome != "repaired" || answer.Findings[0].Outcome != "no ladder" || answer.Findings[2].Outcome != "" {
			t.Errorf("answer %+v", answer)
		}

		lamps.Mend("cellar")
		lamps.Break("attic", "", nil) // at once, though the last repair has failed a moment ago
		answer, err = d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "attic", "porch")
		wantSubjects(t, "left", answer.Findings)
	})
}

func TestARepairThatDoesNotHelpIsNotCalledRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		lamps.Break("hall", "", func(context.Context) error {
			go func() {
				time.Sleep(time.Millisecond)
				lamps.Break("hall", "", nil)
			}()
			return nil
		})
		d := newDoctor(t, doctor.Config{}, lamps)
		lamps.Fail(func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired)
		wantSubjects(t, "left", answer.Findings, "hall")
	})
}

func TestARepairNowAndTheLoopsDoNotRepairTheSameTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		repairs := 0
		lamps.Break("hall", "", func(context.Context) error { repairs++; time.Sleep(time.Second); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), lamps)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(59 * time.Second) // one look of the loop's; the next one is in a second
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		time.Sleep(time.Hour)
		wantSubjects(t, "repaired", answer.Repaired, "hall")
		if repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}

func TestWhereNothingCanBeRepairedNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		lamps.BreakForGood("cellar", "")
		d, began := newDoctor(t, doctor.Config{}, lamps), time.Now()
		answer, err := d.Repair(t.Context(), "")
		succeeded(t, err)
		wantSubjects(t, "left", answer.Findings, "cellar")
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

func TestARepairEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		lamps.Break("hall", "", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		lamps.Break("stairs", "", nil)
		d := newDoctor(t, doctor.Config{}, lamps)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := d.Repair(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if len(lamps.Broken()) != 2 {
			t.Errorf("%v is broken", lamps.Broken())
		}
	})
}
