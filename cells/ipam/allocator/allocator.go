package allocator

import (
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// The faults that callers tell apart.
var (
	ErrExhausted     = fault.New(fault.Exhausted, "no free address")
	ErrInUse         = fault.WithHint(fault.New(fault.Conflict, "address in use"), "ask for another address, or release this one: porin ipam list shows whose it is")
	ErrQuarantined   = fault.New(fault.Unavailable, "address released a short while ago")
	ErrOutside       = fault.New(fault.Invalid, "address cannot be given out")
	ErrUnknownPool   = fault.New(fault.Invalid, "no such pool")
	ErrNoReservation = fault.WithHint(fault.New(fault.Conflict, "no such reservation, or it is over"), hintNoReservation)
	ErrBlockInUse    = fault.New(fault.Conflict, "addresses of the block are in use")
	ErrNamespace     = fault.New(fault.Invalid, "not for this namespace")
	ErrNoOwner       = fault.New(fault.NotFound, "address of nobody")
)

// errNoOwnBlock is the ErrExhausted of a node that has no block of the pool.
var errNoOwnBlock = fault.Wrap(fault.Exhausted, ErrExhausted)

const (
	hintNoReservation = "a reservation is of one node, and ends by its time or with the pod that has used it: reserve again with porin ipam reserve " +
		"on the node of the pod"
	hintExhausted = "remove pods from this node, or give it more addresses"
)

// ExternalPool is the pool in which addresses of another IPAM are shown.
const ExternalPool = "external"

// Request asks for addresses.
type Request struct {
	Owner Handle
	// PodHandle is another handle of the owner: what it owns is released with the last owner that names it, if it was there
	// before that owner.
	PodHandle Handle
	Pool      string // "" is [DefaultPool]
	// Namespace is the pod's, for pools that are not for all; "" for who is no pod. Who reserves needs none.
	Namespace string
	// Want asks for these very addresses. A family that is zero here gets any, if the pool has that family.
	Want endpoint.Addresses
	// Reservation is the token of a reservation whose addresses the owner takes over.
	Reservation string
}

func (r Request) pool() string {
	if r.Pool == "" {
		return DefaultPool
	}
	return r.Pool
}

// Allocation is what one owner has. It is a value, and two can be compared with ==.
type Allocation struct {
	Owner     Handle
	PodHandle Handle
	Pool      string // for people; "" when it is not known: what counts is the block that an address lies in
	Addresses endpoint.Addresses
	Since     time.Time
	// Seq is another one each time that somebody gets something, and greater than all before it, in this life of the agent
	// and in earlier ones of this boot: a release that names it never hits the next owner of the same handle.
	Seq uint64
	// Reserved says that the owner is no endpoint but who has reserved the addresses. Expires is when that ends; zero for a
	// permanent reservation.
	Reserved bool
	Expires  time.Time
	// ReservedBy has reserved the addresses permanently, and lent them: when they are released they are reserved again.
	ReservedBy Handle
	// External says that another IPAM gave the addresses. As long as the owner has them ours gives them to nobody, and
	// when it has them no longer they do not rest.
	External bool
	// Kept says that the owner is gone, and its addresses are not released on purpose.
	Kept bool
	// Asked counts how often the owner has asked for them, so that who acts on an old [Allocator.List] does no harm.
	Asked int
}

// Allocator owns the addresses of this node. Every method may be called concurrently, and none blocks but what writes to a
// [ReservationStore].
type Allocator struct {
	start time.Time // of its clock
	store ReservationStore
	low   chan struct{} // has a token when a pool has come to have little

	mu           sync.Mutex // guards the fields below, and all that they point to
	pools        poolSet
	owners       owners
	reservations reservations
	cleanups     cleanups
	suspended    error // why nothing is given out; nil: it is
}

// New returns an allocator without pools. Reservations are kept in the store; nil keeps them in memory only.
func New(store ReservationStore) *Allocator {
	if store == nil {
		store = noStore{}
	}
	return &Allocator{
		start: time.Now(), store: store, low: make(chan struct{}, 1),
		pools: newPoolSet(), owners: newOwners(),
		reservations: reservations{lent: map[Handle]*record{}}, cleanups: cleanups{returned: map[*address]bool{}},
	}
}

// now is the allocator's own clock, which nobody sets.
func (a *Allocator) now() time.Duration { return time.Since(a.start) }

// expire ends what is over by now, and returns now. Whatever looks at the state or changes it does so first.
func (a *Allocator) expire() time.Duration { return a.expireAt(a.now()) }

// expireAt is expire for who has read the clock.
func (a *Allocator) expireAt(now time.Duration) time.Duration {
	for r := a.reservations.over(now); r != nil; r = a.reservations.over(now) {
		a.releaseRecord(r, r.until)
	}
	a.pools.expire(now)
	return now
}

// List shows what every owner has, in no order.
func (a *Allocator) List() []Allocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	return a.owners.list()
}

// Lookup reports whether an address may be given out, now or later, and who has it, or "".
func (a *Allocator) Lookup(addr netip.Addr) (managed bool, owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.pools.index.owner(addr); r != nil {
		owner = r.Owner
	}
	b, e := a.pools.index.home(addr), a.pools.index.known(addr)
	return !b.drained && (e == nil || e.state != nodeOwn), owner
}
