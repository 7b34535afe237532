package allocator

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// reservations finds what is reserved, and what is lent of it. It is not safe for concurrent use.
type reservations struct {
	byEnd []*record
	lent  map[Handle]*record // by who has reserved what they use
}

// loan is a permanent reservation of which an endpoint uses the addresses: it has them again when the endpoint releases them.
type loan struct {
	token string // "" for none
	since time.Time
}

// reservationOptions are those of a reservation; none for an endpoint.
type reservationOptions struct {
	token    string
	lifetime time.Duration
}

// add has what was given be reserved, if the options are those of a reservation. Both times are the present.
func (s *reservations) add(r *record, options reservationOptions, now time.Duration, wall time.Time) {
	if options.token == "" {
		return
	}
	r.token, r.Reserved, r.until = options.token, true, forever
	if options.lifetime != Permanent {
		r.until, r.Expires = now+options.lifetime, wall.Add(options.lifetime)
	}
	at, _ := slices.BinarySearchFunc(s.byEnd, r.until, func(other *record, until time.Duration) int {
		return cmp.Compare(other.until, until)
	})
	s.byEnd = slices.Insert(s.byEnd, at, r)
}

// remove has a record be no reservation any more. Nothing happens when it is none.
func (s *reservations) remove(r *record) {
	if r.token == "" {
		return
	}
	s.byEnd = slices.DeleteFunc(s.byEnd, func(other *record) bool { return other == r })
	r.token, r.until, r.Expires, r.Reserved, r.restored = "", 0, time.Time{}, false, false
}

// ended returns a reservation that has ended by now, or nil.
func (s *reservations) ended(now time.Duration) *record {
	if len(s.byEnd) > 0 && s.byEnd[0].until <= now {
		return s.byEnd[0]
	}
	return nil
}

// find returns the reservation of a token, or nil.
func (s *reservations) find(token string) *record {
	for _, r := range s.byEnd {
		if r.token == token {
			return r
		}
	}
	return nil
}

// lend has an owner use what the lender has reserved.
func (s *reservations) lend(r *record, lender Handle, l loan) {
	r.ReservedBy, r.loan = lender, l
	s.lent[lender] = r
}

// endLoan has the owner's addresses be reserved by nobody.
func (s *reservations) endLoan(r *record) {
	delete(s.lent, r.ReservedBy)
	r.ReservedBy, r.loan = "", loan{}
}

// borrower returns who uses what is reserved by the token; nil when nobody does.
func (s *reservations) borrower(token string) *record {
	for _, r := range s.lent {
		if r.loan.token == token {
			return r
		}
	}
	return nil
}

// checkLent returns an error when the owner has lent what it has reserved.
func (s *reservations) checkLent(lender Handle) error {
	if r := s.lent[lender]; r != nil {
		return fmt.Errorf("%w: it has reserved %v permanently, which %s uses", ErrInUse, r.Addresses.List(), r.Owner)
	}
	return nil
}
