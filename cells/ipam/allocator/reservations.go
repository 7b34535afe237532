package allocator

import (
	"cmp"
	"slices"
	"time"
)

// reservations finds what is reserved. It is not safe for concurrent use.
type reservations struct {
	byEnd []*record
}

// reservationOptions are the options of a reservation; none for an endpoint.
type reservationOptions struct {
	token    string
	lifetime time.Duration
}

// add reserves the given addresses, if the options are a reservation's. Both times are the present.
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

// remove ends the reservation of a record. Nothing happens when it has none.
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
