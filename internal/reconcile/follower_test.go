package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/internal/reconcile"
)

// source has owners that a test breaks.
type source struct {
	mu      sync.Mutex
	events  chan string // nil before Watch
	watches int
	broken  map[string]bool
	unread  error // of each comparison
	repairs map[string][]time.Time
	compare map[string]int                                // comparisons
	repair  func(ctx context.Context, owner string) error // before the repair; nil for nothing
}

func newSource() *source {
	return &source{broken: map[string]bool{}, repairs: map[string][]time.Time{}, compare: map[string]int{}}
}

func (s *source) Watch(ctx context.Context) (<-chan string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches++; s.watches == 2 {
		return nil, errors.New("no room")
	}
	events, told := make(chan string), make(chan string)
	s.events = events
	go func() {
		defer close(told)
		for {
			select {
			case owner, open := <-events:
				if !open {
					return
				}
				told <- owner
			case <-ctx.Done():
				return
			}
		}
	}()
	return told, nil
}

// lose ends the notifications.
func (s *source) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.events)
}

func (s *source) Owners() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		panic("the owners are listed before anything is watched")
	}
	return []string{"one", "two"}
}

func (s *source) Differs(owner string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compare[owner]++
	return s.broken[owner], s.unread
}

func (s *source) Repair(ctx context.Context, owner string) error {
	if s.repair != nil {
		if err := s.repair(ctx, owner); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.broken, owner)
	s.repairs[owner] = append(s.repairs[owner], time.Now())
	return nil
}

// take breaks an owner, and tells of it.
func (s *source) take(owner string) {
	s.mu.Lock()
	s.broken[owner] = true
	events := s.events
	s.mu.Unlock()
	events <- owner
}

func (s *source) repairsOf(owner string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.repairs[owner])
}

func (s *source) comparisonsOf(owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compare[owner]
}

// following runs a test beside a follower that has compared all owners once.
func following(t *testing.T, s *source, test func(t *testing.T, f *reconcile.Follower[string])) {
	synctest.Test(t, func(t *testing.T) {
		f := reconcile.NewFollower(s, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		time.Sleep(time.Second)
		test(t, f)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ends with %v", err)
		}
	})
}

func TestFollowerComparesAllFirst(t *testing.T) {
	s := newSource()
	s.broken["two"] = true
	following(t, s, func(t *testing.T, _ *reconcile.Follower[string]) {
		if s.comparisonsOf("one") != 1 || len(s.repairsOf("one")) > 0 || len(s.repairsOf("two")) != 1 {
			t.Errorf("%d comparisons, repairs %v", s.comparisonsOf("one"), s.repairs)
		}
	})
}

func TestFollowerEvent(t *testing.T) {
	s := newSource()
	following(t, s, func(t *testing.T, f *reconcile.Follower[string]) {
		began := time.Now()
		for range 20 { // events of one owner are one comparison
			s.take("one")
		}
		s.events <- "two" // which has all
		time.Sleep(20 * time.Millisecond)
		if repairs := s.repairsOf("one"); len(repairs) != 1 || repairs[0].Sub(began) != 10*time.Millisecond {
			t.Errorf("repairs %v, begun %v", repairs, began)
		}
		if s.comparisonsOf("one") != 2 || s.comparisonsOf("two") != 2 || len(s.repairsOf("two")) > 0 {
			t.Errorf("comparisons %v, repairs %v", s.compare, s.repairs)
		}
		if f.IsContested("one") {
			t.Error("one repair is a contest")
		}
	})
}

// TestFollowerEventDuringRepair has an event come while the owner is repaired: it is compared again.
func TestFollowerEventDuringRepair(t *testing.T) {
	s := newSource()
	s.repair = func(context.Context, string) error {
		time.Sleep(time.Second)
		return nil
	}
	following(t, s, func(t *testing.T, _ *reconcile.Follower[string]) {
		s.take("one")
		time.Sleep(500 * time.Millisecond)
		s.events <- "one"
		time.Sleep(2 * time.Second)
		if s.comparisonsOf("one") != 3 { // the first, the event's, and after the repair
			t.Errorf("%d comparisons", s.comparisonsOf("one"))
		}
	})
}

// TestFollowerContested: another program removes the same after each repair.
func TestFollowerContested(t *testing.T) {
	s := newSource()
	following(t, s, func(t *testing.T, f *reconcile.Follower[string]) {
		began := time.Now()
		for time.Since(began) < 2*time.Minute {
			s.take("one")
			time.Sleep(100 * time.Millisecond)
		}
		repairs := s.repairsOf("one")
		var at []time.Duration
		for _, repair := range repairs {
			at = append(at, repair.Sub(began).Truncate(time.Second))
		}
		want := []time.Duration{0, 0, 0, 0, 0, 30 * time.Second, 60 * time.Second, 90 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("repairs after %v, want %v", at, want)
		}
		if !f.IsContested("one") || f.IsContested("two") {
			t.Errorf("contested: %t, %t", f.IsContested("one"), f.IsContested("two"))
		}
		s.take("two") // is not held up
		time.Sleep(100 * time.Millisecond)
		if len(s.repairsOf("two")) != 1 {
			t.Error("another owner waits")
		}
		time.Sleep(10 * time.Minute) // the other program has ended
		if f.IsContested("one") {
			t.Error("it is contested after ten quiet minutes")
		}
		before := len(s.repairsOf("one"))
		for range burst {
			s.take("one")
			time.Sleep(100 * time.Millisecond)
		}
		if now := len(s.repairsOf("one")); now != before+burst {
			t.Errorf("%d repairs at once after ten quiet minutes, want %d", now-before, burst)
		}
	})
}

const burst = 5 // repairs at once

// TestFollowerLastAtOnce: the fifth repair waits for nothing while it runs.
func TestFollowerLastAtOnce(t *testing.T) {
	s := newSource()
	s.repair = func(context.Context, string) error {
		time.Sleep(time.Second)
		return nil
	}
	following(t, s, func(t *testing.T, f *reconcile.Follower[string]) {
		for i := range burst {
			s.take("one")
			time.Sleep(500 * time.Millisecond)
			if f.IsContested("one") {
				t.Fatalf("repair %d is under way, and waits", i+1)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestFollowerRepairFails(t *testing.T) {
	s := newSource()
	tries := 0
	s.repair = func(context.Context, string) error {
		if tries++; tries < 3 {
			return errors.New("the link is down")
		}
		return nil
	}
	following(t, s, func(t *testing.T, _ *reconcile.Follower[string]) {
		began := time.Now()
		s.take("one")
		time.Sleep(5 * time.Second)
		if repairs := s.repairsOf("one"); len(repairs) != 1 || repairs[0].Sub(began).Truncate(time.Second) != 2*time.Second {
			t.Errorf("repairs %v after %d tries, begun %v", repairs, tries, began)
		}
	})
}

// TestFollowerComparisonFails: that the kernel cannot be read is no contest, however often.
func TestFollowerComparisonFails(t *testing.T) {
	s := newSource()
	s.unread = errors.New("dump interrupted")
	following(t, s, func(t *testing.T, f *reconcile.Follower[string]) {
		time.Sleep(20 * time.Second)
		if n := s.comparisonsOf("one"); n <= burst || len(s.repairsOf("one")) > 0 || f.IsContested("one") {
			t.Errorf("%d comparisons, repairs %v, contested %t", n, s.repairs, f.IsContested("one"))
		}
	})
}

// TestFollowerSlowRepair: one owner whose repair hangs does not hold up the others, nor the end.
func TestFollowerSlowRepair(t *testing.T) {
	s := newSource()
	s.repair = func(ctx context.Context, owner string) error {
		if owner == "one" {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	following(t, s, func(t *testing.T, _ *reconcile.Follower[string]) {
		s.take("one")
		s.take("two")
		time.Sleep(100 * time.Millisecond)
		if len(s.repairsOf("two")) != 1 {
			t.Error("the other owner is not repaired")
		}
	})
}

func TestFollowerNotificationsLost(t *testing.T) {
	s := newSource()
	following(t, s, func(t *testing.T, _ *reconcile.Follower[string]) {
		s.mu.Lock()
		s.broken["two"] = true // without an event
		s.mu.Unlock()
		s.lose()
		time.Sleep(3 * time.Second) // the second try to watch succeeds
		if len(s.repairsOf("two")) != 1 || s.watches != 3 {
			t.Errorf("repairs %v, %d watches", s.repairs, s.watches)
		}
		s.take("one")
		time.Sleep(100 * time.Millisecond)
		if len(s.repairsOf("one")) != 1 {
			t.Error("nothing is watched any more")
		}
	})
}

// TestFollowerRunsAgain: a follower whose Run has ended while an owner waited follows that owner in its next Run.
func TestFollowerRunsAgain(t *testing.T) {
	s := newSource()
	s.broken["one"] = true
	synctest.Test(t, func(t *testing.T) {
		f := reconcile.NewFollower(s, slog.New(slog.DiscardHandler))
		for _, lasts := range []time.Duration{time.Millisecond, time.Second} { // the first is over before anything is compared
			s.watches = 0
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			if err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run ends with %v", err)
			}
			cancel()
		}
		if len(s.repairsOf("one")) != 1 || f.IsContested("one") {
			t.Errorf("repairs %v, contested %t", s.repairs, f.IsContested("one"))
		}
	})
}
