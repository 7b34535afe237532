package ipam

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

// How long a reservation lasts unless its caller says otherwise, and at the most.
const (
	DefaultReservation = 10 * time.Minute
	MaxReservation     = time.Hour
)

// maxOwner bounds the name of who reserves.
const maxOwner = 253

// Reservation is what somebody has reserved.
type Reservation struct {
	Owner     Handle
	Pool      string
	Addresses endpointmanager.Addresses
	Token     string // stops this reservation and no later one
	Expires   time.Time
}

// Reserver keeps addresses for somebody who is no endpoint, or not yet one. A reservation ends by itself, so what a lost
// caller had comes back; and it is in memory only: at a restart of the agent it is over.
type Reserver interface {
	// Reserve is Allocate with an end, after [DefaultReservation] if lifetime is 0. An owner that has something already is
	// refused with [ErrInUse], as who asks again may be another one. An endpoint takes it over by Request.Reservation.
	Reserve(ctx context.Context, req Request, lifetime time.Duration) (Reservation, error)

	// Return releases what is reserved or kept together with an address. With a token it does so only for the
	// reservation of that token; without, for whatever is there: an operator's call. What an endpoint uses is [ErrInUse],
	// what is nobody's [ErrNobodys].
	Return(addr netip.Addr, token string) (Reservation, error)
}

// terms are those of a reservation; none for an endpoint.
type terms struct {
	token    string
	lifetime time.Duration
}

// Reserve implements [Reserver].
func (a *allocator) Reserve(ctx context.Context, req Request, lifetime time.Duration) (Reservation, error) {
	if lifetime == 0 {
		lifetime = DefaultReservation
	}
	if lifetime < 0 || lifetime > MaxReservation {
		return Reservation{}, fault.New(fault.Invalid, fmt.Sprintf("reserve for %s: want at most %s", lifetime, MaxReservation))
	}
	if err := checkOwner(req.Owner); err != nil {
		return Reservation{}, err
	}
	got, token, err := a.obtain(ctx, req, terms{rand.Text(), lifetime})
	if err != nil {
		return Reservation{}, err
	}
	return Reservation{Owner: got.Owner, Pool: got.Pool, Addresses: got.Addresses, Token: token, Expires: got.Expires}, nil
}

func checkOwner(owner Handle) error {
	if owner == "" || len(owner) > maxOwner || strings.ContainsFunc(string(owner), func(c rune) bool {
		return c == unicode.ReplacementChar || !unicode.IsPrint(c)
	}) {
		return fault.New(fault.Invalid, fmt.Sprintf("owner %.64q: want a name of at most %d printable characters", string(owner), maxOwner))
	}
	return nil
}

// reserve has what was given end by the terms.
func (a *allocator) reserve(r *record, t terms) {
	if t.token == "" {
		return
	}
	r.token, r.until, r.Expires = t.token, a.now()+t.lifetime, r.Since.Add(t.lifetime)
	at, _ := slices.BinarySearchFunc(a.reservations, r.until, func(other *record, until time.Duration) int {
		return int(max(-1, min(1, other.until-until)))
	})
	a.reservations = slices.Insert(a.reservations, at, r)
}

// endReservation has a record be no reservation any more. Nothing happens when it is none.
func (a *allocator) endReservation(r *record) {
	if r.token == "" {
		return
	}
	a.reservations = slices.DeleteFunc(a.reservations, func(other *record) bool { return other == r })
	r.token, r.until, r.Expires = "", 0, time.Time{}
}

// takeOver makes what is reserved the owner's.
func (a *allocator) takeOver(req Request) (Allocation, error) {
	i := slices.IndexFunc(a.reservations, func(r *record) bool { return r.token == req.Reservation })
	if i < 0 {
		return Allocation{}, ErrNoReservation
	}
	r := a.reservations[i]
	if req.Pool != "" && req.Pool != r.Pool {
		return Allocation{}, fmt.Errorf("%w: it is of pool %s", ErrNoReservation, r.Pool)
	}
	if err := r.satisfies(req); err != nil {
		return Allocation{}, err
	}
	delete(a.owners, r.Owner)
	a.endReservation(r)
	a.nameLegacy(r.Legacy, -1)
	a.nameLegacy(req.Legacy, 1)
	r.Owner, r.Legacy, r.Since, r.Seq = req.Owner, req.Legacy, time.Now(), a.nextSeq()
	a.owners[r.Owner] = r
	return r.Allocation, nil
}

// Return implements [Reserver].
func (a *allocator) Return(addr netip.Addr, token string) (Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.tidy()
	r := a.addresses[addr]
	switch {
	case r == nil:
		return Reservation{}, fmt.Errorf("release %s: %w", addr, ErrNobodys)
	case r.token == "" && !r.Kept:
		return Reservation{}, fmt.Errorf("release %s: %w by endpoint %s: delete that", addr, ErrInUse, r.Owner)
	case token != "" && token != r.token:
		return Reservation{}, fmt.Errorf("release %s: %w: it is %s's by now", addr, ErrNoReservation, r.Owner)
	}
	was := Reservation{Owner: Handle(r.shown()), Pool: r.Pool, Addresses: r.Addresses, Expires: r.Expires}
	a.release(r, now)
	return was, nil
}
