package allocator

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// How long a reservation lasts unless its caller says otherwise, and at the most if it is not [Permanent].
const (
	DefaultReservation = 10 * time.Minute
	MaxReservation     = time.Hour
	Permanent          = forever
)

// forever is later than any time that comes.
const forever = time.Duration(math.MaxInt64)

// maxOwner bounds the name of who reserves.
const maxOwner = 253

// Reservation has the reserved addresses of an owner.
type Reservation struct {
	Owner     Handle
	Pool      string
	Addresses endpoint.Addresses
	Token     string // stops this reservation and no later one
	Since     time.Time
	Expires   time.Time // zero for a permanent one
	Permanent bool
}

// ReservationStore keeps reservations, by their tokens, over restarts of the agent and of the machine.
type ReservationStore interface {
	// Save returns when the reservation is on disk, in place of earlier ones of its owner whose Delete failed.
	Save(r Reservation) error
	// Delete succeeds when there is none.
	Delete(token string) error
}

// noStore keeps nothing.
type noStore struct{}

func (noStore) Save(Reservation) error { return nil }
func (noStore) Delete(string) error    { return nil }

func (a *Allocator) isReserved(got Allocation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.core.owners.records[got.Owner]
	return r != nil && r.Seq == got.Seq
}

func checkOwner(owner Handle) error {
	if owner == "" || len(owner) > maxOwner || strings.ContainsFunc(string(owner), func(c rune) bool {
		return c == unicode.ReplacementChar || !unicode.IsPrint(c)
	}) {
		return fault.New(fault.Invalid, fmt.Sprintf("owner %.64q: want a name of at most %d printable characters", string(owner), maxOwner))
	}
	return nil
}

// RestoreReservation takes up a reservation of an earlier life of the agent, in a block or before its block comes. An
// expired one is no error. An address with another owner by now is [ErrInUse].
func (a *Allocator) RestoreReservation(saved Reservation) error {
	options := reservationOptions{saved.Token, Permanent}
	if !saved.Permanent {
		if options.lifetime = min(time.Until(saved.Expires), MaxReservation); options.lifetime <= 0 {
			return nil
		}
	}
	now := a.lock()
	defer a.mu.Unlock()
	return a.core.restore(saved, options, now)
}

// ReleaseReservation releases all that is reserved or kept together with an address. With a token it does so only for
// the reservation of that token; without, for any: an operator's call. An address that an endpoint uses is [ErrInUse],
// an address without an owner [ErrNoOwner]. The error of used keeps a permanent reservation; it is called with a lock
// held, so that no endpoint gets the addresses meanwhile, and must not call back. It may be nil.
func (a *Allocator) ReleaseReservation(addr netip.Addr, token string, used func(Reservation) error) (Reservation, error) {
	was, saved, err := a.releaseReservation(addr, token, used)
	if err != nil {
		return was, fmt.Errorf("release %s: %w", addr, err)
	}
	if saved == "" {
		return was, nil
	}
	if err := a.store.Delete(saved); err != nil {
		return was, fmt.Errorf("release %s, which is reserved again after a restart of the agent: %w", addr, err)
	}
	return was, nil
}

func (a *Allocator) releaseReservation(addr netip.Addr, token string, used func(Reservation) error) (was Reservation, saved string, err error) {
	now := a.lock()
	defer a.mu.Unlock()
	return a.core.releaseReservation(addr, token, used, now)
}

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
