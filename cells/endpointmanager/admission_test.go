package endpointmanager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/internal/fault"
)

// admitted lets so many in as there are places, lets the others wait in the given order, and returns the order in which they
// got in when the first ones left one by one.
func admitted(t *testing.T, limit int, occupants []lane, waiting []ticket) (order []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(limit)
		var leave []func()
		for _, l := range occupants {
			out, err := a.enter(t.Context(), l, "")
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, out)
		}
		for _, w := range waiting {
			go func() {
				out, err := a.enter(t.Context(), w.lane, w.namespace)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, w.lane.String()+" "+w.namespace)
				time.Sleep(time.Second)
				out()
			}()
			synctest.Wait()
		}
		for _, out := range leave {
			out()
			time.Sleep(time.Hour)
		}
	})
	return order
}

func TestDeletionsComeFirstThenCriticalThenTheNamespacesInTurn(t *testing.T) {
	got := admitted(t, 1, []lane{laneFair, laneDelete}, []ticket{
		{lane: laneFair, namespace: "a"}, {lane: laneFair, namespace: "a"}, {lane: laneFair, namespace: "a"},
		{lane: laneFair, namespace: "b"}, {lane: laneFair, namespace: "b"}, {lane: laneFair, namespace: "c"},
		{lane: laneCritical, namespace: "kube-system"}, {lane: laneDelete}, {lane: laneDelete},
	})
	want := []string{
		"delete ", "delete ", "critical kube-system", "fair a", "fair b", "fair c", "fair a", "fair b", "fair a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestCreationsThatHangDoNotHoldUpADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(2)
		for range 2 {
			if _, err := a.enter(t.Context(), laneFair, "a"); err != nil {
				t.Fatal(err)
			}
		}
		leave, err := a.enter(t.Context(), laneDelete, "")
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

func TestNobodyIsRefusedBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1)
		leave, err := a.enter(t.Context(), laneFair, "a")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, timeout := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if _, err := a.enter(ctx, laneFair, "b"); !errors.Is(err, errBusy) || fault.KindOf(err) != fault.Deadline {
				t.Errorf("error %v, want errBusy", err)
			}
		}
		if waited := time.Since(began); waited != time.Minute+time.Second {
			t.Errorf("waited %s", waited)
		}
		leave()
		if waiting, running := a.counts(); waiting != [lanes]int{} || running != [lanes]int{} {
			t.Errorf("waiting %v, running %v: want nobody", waiting, running)
		}
	})
}

// TestADeletionThatGivesUpLetsCreationsIn: all that a creation waits for is a deletion that has no place itself.
func TestADeletionThatGivesUpLetsCreationsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1)
		leaveDeletion, err := a.enter(t.Context(), laneDelete, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		go func() { _, _ = a.enter(ctx, laneDelete, "") }()
		synctest.Wait()
		in := false
		go func() {
			leave, err := a.enter(t.Context(), laneFair, "a")
			in = err == nil
			leave()
		}()
		synctest.Wait()
		giveUp()
		synctest.Wait()
		if in {
			t.Error("it came in beside a deletion, and there is one place")
		}
		leaveDeletion()
		synctest.Wait()
		if !in {
			t.Error("nobody is there any more, and it did not come in")
		}
	})
}

func TestWhoIsCritical(t *testing.T) {
	cfg := DefaultConfig()
	for pod, want := range map[Pod]lane{
		{}:                         laneFair,
		{Namespace: "default"}:     laneFair,
		{Namespace: "kube-system"}: laneCritical,
		{Namespace: "default", PriorityClass: "system-node-critical"}: laneCritical,
		{Namespace: "default", PriorityClass: "high"}:                 laneFair,
	} {
		if got := cfg.laneOf(pod); got != want {
			t.Errorf("%+v goes by lane %s, want %s", pod, got, want)
		}
	}
}
