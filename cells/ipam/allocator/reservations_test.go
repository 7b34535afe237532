package allocator

import (
	"testing"
	"time"
)

func TestReservationsEnded(t *testing.T) {
	s, wall := reservations{}, time.Now()
	for token, lifetime := range map[string]time.Duration{"late": 3, "never": Permanent, "early": 1, "": 2} {
		s.add(new(record), reservationOptions{token, lifetime}, 10, wall)
	}
	for _, want := range []string{"early", "late"} {
		r := s.ended(13)
		if r == nil || r.token != want {
			t.Fatalf("%+v has ended, want %s", r, want)
		}
		s.remove(r)
	}
	if r := s.ended(forever - 1); r != nil || s.find("never") == nil || s.find("late") != nil {
		t.Errorf("%+v has ended; what is left: %+v", r, s.byEnd)
	}
}
