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

func TestCostlyCheckerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, began := doctortest.New("routes", "route-missing"), time.Now()
		var calls []time.Duration
		routes.Fail(func(context.Context) error { calls = append(calls, time.Since(began)); return nil })
		d := newDoctor(t, doctor.DefaultConfig(), costly{routes})
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(calls) < 5 || calls[0] > 10*time.Minute+30*time.Second {
			t.Fatalf("calls after %v", calls)
		}
		for i := range calls[1:] {
			if gap := calls[i+1] - calls[i]; gap != 10*time.Minute {
				t.Errorf("%s between two calls", gap)
			}
		}
		before := routes.Calls()
		for range 3 {
			_, err := d.Examine(t.Context(), doctor.Scope{})
			succeeded(t, err)
		}
		if n := routes.Calls() - before; n != 3 {
			t.Errorf("%d calls for who asks, want 3", n)
		}
	})
}

func TestCostlyCheckerFindingsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, addresses := doctortest.New("routes", "route-missing"), doctortest.New("addresses", "address-reserved")
		routes.BreakManual("por2", "")
		d := newDoctor(t, doctor.DefaultConfig(), costly{routes}, addressed{Checker: addresses})
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
