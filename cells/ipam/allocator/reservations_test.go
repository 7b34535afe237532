package allocator

import (
	"testing"
	"time"
)

func TestReservationsEnded(t *testing.T) {
	s, wall := reservations{lent: map[Handle]*record{}}, time.Now()
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

func TestReservationsLend(t *testing.T) {
	s, r := reservations{lent: map[Handle]*record{}}, new(record)
	s.lend(r, "db", loan{token: "secret"})
	if s.borrower("secret") != r || s.checkLent("db") == nil || r.ReservedBy != "db" {
		t.Errorf("%+v does not use what is reserved", r)
	}
	s.endLoan(r)
	if s.borrower("secret") != nil || s.checkLent("db") != nil || r.ReservedBy != "" {
		t.Errorf("%+v still uses what is reserved", r)
	}
}
