package allocator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/internal/fault"
)

// Refiller gets this node more of a pool.
type Refiller interface {
	// Refill claims a block of each family without a free address of the pool, or the blocks of the
	// addresses that are wanted. It returns when it has tried, or when ctx ends; an error says why there will be no
	// more. It may call the allocator.
	Refill(ctx context.Context, pool string, want ...netip.Addr) error
}

// Source gives out addresses of an allocator. When there is none it asks for more, and waits for the answer or the end
// of ctx.
type Source struct {
	allocator *Allocator
	refiller  Refiller // nil when there never is more
}

// NewSource returns a source. Without a refiller, nil, it has what the allocator has.
func NewSource(a *Allocator, r Refiller) *Source { return &Source{a, r} }

// Allocator returns the allocator whose addresses the source gives out.
func (s *Source) Allocator() *Allocator { return s.allocator }

// Allocate gives the owner one address of each family of the pool, or none and one of the package's errors. An owner
// that has addresses already gets them again, unless it wants others: that is [ErrInUse].
func (s *Source) Allocate(ctx context.Context, req Request) (Allocation, error) {
	got, err := s.allocate(ctx, req, reservationOptions{})
	if err == nil && req.Reservation != "" && !s.allocator.isLive(req.Reservation) {
		err = s.allocator.store.Delete(req.Reservation)
	}
	return got, err
}

// Reserve keeps addresses for an owner that is no endpoint, or not yet one. It is Allocate with an end, after
// [DefaultReservation] if lifetime is 0, or without one if it is [Permanent]. When it returns, the reservation is in
// the store. An owner with addresses is refused with [ErrInUse], as a repeated call may be another owner's. An endpoint
// takes it over by Request.Reservation; a permanent one stays, and the endpoint uses its addresses.
func (s *Source) Reserve(ctx context.Context, req Request, lifetime time.Duration) (Reservation, error) {
	if lifetime == 0 {
		lifetime = DefaultReservation
	}
	if lifetime < 0 || lifetime > MaxReservation && lifetime != Permanent {
		return Reservation{}, fault.New(fault.Invalid, fmt.Sprintf("reserve for %s: want at most %s, or a permanent reservation", lifetime, MaxReservation))
	}
	if err := checkOwner(req.Owner); err != nil {
		return Reservation{}, err
	}
	options := reservationOptions{rand.Text(), lifetime}
	got, err := s.allocate(ctx, req, options)
	if err != nil {
		return Reservation{}, err
	}
	r := Reservation{
		Owner: got.Owner, Pool: got.Pool, Addresses: got.Addresses, Token: options.token, Since: got.Since, Expires: got.Expires,
		Permanent: lifetime == Permanent,
	}
	if err := s.allocator.store.Save(r); err != nil { // which waits for a disk: without the lock
		_, _, _ = s.allocator.releaseReservation(got.Addresses.List()[0], options.token, nil)
		return Reservation{}, fmt.Errorf("reserve for %s: %w", req.Owner, err)
	}
	if !s.allocator.isReserved(got) { // an operator has ended it meanwhile
		return Reservation{}, errors.Join(ErrNoReservation, s.allocator.store.Delete(options.token))
	}
	return r, nil
}

// maxRefills bounds how often a caller asks for more because others were quicker.
const maxRefills = 4

// allocate tries once more even after a failed refill: an address may have been released meanwhile, and the
// first error may be outdated.
func (s *Source) allocate(ctx context.Context, req Request, options reservationOptions) (Allocation, error) {
	if err := ctx.Err(); err != nil {
		return Allocation{}, fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	got, err := s.allocator.allocate(req, options)
	for tries := 0; s.refiller != nil && mayRefill(err, tries); tries++ {
		req := s.allocator.ofReservation(req)
		refillErr := s.refiller.Refill(ctx, req.pool(), req.Want.List()...)
		first := err
		if err = ctx.Err(); err == nil {
			got, err = s.allocator.allocate(req, options)
		}
		if err != nil && (refillErr != nil || ctx.Err() != nil) {
			err = explainRefill(ctx, req, first, err, refillErr)
			break
		}
	}
	if err != nil {
		return Allocation{}, fmt.Errorf("allocate for %s: %w", req.Owner, err)
	}
	return got, nil
}

// mayRefill reports whether more addresses may help after an error.
func mayRefill(err error, tries int) bool {
	if tries > 0 {
		return errors.Is(err, ErrExhausted) && tries < maxRefills
	}
	return errors.Is(err, ErrExhausted) || errors.Is(err, ErrUnknownPool) || errors.Is(err, ErrOutside) || errors.Is(err, errNotGiven)
}

// explainRefill is the error that says why there will never be more, or what there is and why there is no more now.
// What to do about it is what the refill says.
func explainRefill(ctx context.Context, req Request, first, second, refill error) error {
	if refill == nil {
		return second
	}
	kind := fault.KindOf(refill)
	if ctx.Err() != nil {
		second = first
	}
	var err error
	switch {
	case kind == fault.Invalid || kind == fault.Conflict:
		return refill
	case errors.Is(second, ErrUnknownPool): // the pools could not be asked for
		err = fmt.Errorf("pool %q is not known yet: %w", req.pool(), refill)
	case errors.Is(second, ErrOutside), errors.Is(second, errNotGiven):
		err = fmt.Errorf("pool %s: the block of %v cannot be claimed: %w", req.pool(), req.Want.List(), refill)
	case kind == fault.Exhausted && errors.Is(second, errNoOwnBlock):
		return refill
	case kind == fault.Exhausted:
		err = fmt.Errorf("%w; %w", second, refill)
	case errors.Is(second, errNoOwnBlock):
		err = fmt.Errorf("pool %s: no block of it can be claimed: %w", req.pool(), refill)
	default:
		err = fmt.Errorf("%w; no further block can be claimed: %w", second, refill)
	}
	if hint, ok := fault.HintOf(refill); ok {
		err = fault.WithHint(err, hint)
	}
	return err
}
