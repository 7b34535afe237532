package doctor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
)

// costly is a checker that the loop spares.
type costly struct{ *doctortest.Checker }

func (costly) Every() time.Duration { return 10 * time.Minute }

func TestACostlyCheckerLooksNowAndThenAndForWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps, began := doctortest.New("lamps", "lamp-dark"), time.Now()
		var looks []time.Duration
		lamps.Fail(func(context.Context) error { looks = append(looks, time.Since(began)); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), costly{lamps})
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(looks) < 5 || looks[0] > 10*time.Minute+30*time.Second {
			t.Fatalf("looks after %v", looks)
		}
		for i := range looks[1:] {
			if gap := looks[i+1] - looks[i]; gap != 10*time.Minute {
				t.Errorf("%s between two looks", gap)
			}
		}
		before := lamps.Looks()
		for range 3 {
			_, err := d.Examine(t.Context(), doctor.Scope{})
			succeeded(t, err)
		}
		if n := lamps.Looks() - before; n != 3 {
			t.Errorf("%d looks for who asks, want 3", n)
		}
	})
}

func TestWhatACostlyCheckerHasFoundStaysKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps, numbers := doctortest.New("lamps", "lamp-dark"), doctortest.New("numbers", "number-odd")
		lamps.BreakForGood("cellar", "")
		d := newDoctor(t, doctor.DefaultConfig(), costly{lamps}, addressed{Checker: numbers})
		_, err := d.Examine(t.Context(), doctor.Scope{})
		succeeded(t, err)
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		answer, err := d.Examine(t.Context(), doctor.Scope{})
		if succeeded(t, err); answer.Findings[0].Times < 12 || answer.Examined.Sub(answer.Findings[0].Since) < 2*time.Hour {
			t.Errorf("found %+v, examined %s", answer.Findings, answer.Examined)
		}
	})
}
