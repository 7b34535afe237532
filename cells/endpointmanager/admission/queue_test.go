package admission

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/internal/fault"
)

// admitted lets so many in as there are places, lets the others wait in the given order, and returns the order in which
// they got in when the first ones left one by one.
func admitted(t *testing.T, limit int, occupants []Lane, waiting []ticket) (order []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newQueue(limit)
		var leave []func()
		for _, l := range occupants {
			out, err := a.Enter(t.Context(), l, "")
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, out)
		}
		for _, w := range waiting {
			go func() {
				out, err := a.Enter(t.Context(), w.lane, w.namespace)
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

func TestOrder(t *testing.T) {
	got := admitted(t, 1, []Lane{Fair, Deletions}, []ticket{
		{lane: Fair, namespace: "a"}, {lane: Fair, namespace: "a"}, {lane: Fair, namespace: "a"},
		{lane: Fair, namespace: "b"}, {lane: Fair, namespace: "b"}, {lane: Fair, namespace: "c"},
		{lane: Critical, namespace: "kube-system"}, {lane: Deletions}, {lane: Deletions},
	})
	want := []string{
		"delete ", "delete ", "critical kube-system", "fair a", "fair b", "fair c", "fair a", "fair b", "fair a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestDeletionWhileCreationsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newQueue(2)
		for range 2 {
			if _, err := a.Enter(t.Context(), Fair, "a"); err != nil {
				t.Fatal(err)
			}
		}
		leave, err := a.Enter(t.Context(), Deletions, "")
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newQueue(1)
		leave, err := a.Enter(t.Context(), Fair, "a")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, timeout := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if _, err := a.Enter(ctx, Fair, "b"); !errors.Is(err, ErrBusy) || fault.KindOf(err) != fault.Deadline {
				t.Errorf("error %v, want ErrBusy", err)
			}
		}
		if waited := time.Since(began); waited != time.Minute+time.Second {
			t.Errorf("waited %s", waited)
		}
		leave()
		if waiting, running := a.Counts(); waiting != [Lanes]int{} || running != [Lanes]int{} {
			t.Errorf("waiting %v, running %v: want nobody", waiting, running)
		}
	})
}

// TestDeletionGivesUp: all that a creation waits for is a deletion that has no place itself.
func TestDeletionGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newQueue(1)
		leaveDeletion, err := a.Enter(t.Context(), Deletions, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = a.Enter(ctx, Deletions, "") }()
		synctest.Wait()
		in := false
		go func() {
			leave, err := a.Enter(t.Context(), Fair, "a")
			in = err == nil
			leave()
		}()
		synctest.Wait()
		cancel()
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
