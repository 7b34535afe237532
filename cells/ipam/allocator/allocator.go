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
	// PodHandle is another handle of the owner: its addresses are released with the last owner that names it, if it was
	// there before that owner.
	PodHandle Handle
	Pool      string // "" is [DefaultPool]
	// Namespace is the pod's, for pools that are not for all; "" for an owner that is no pod. A reservation needs none.
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
	// Seq is a new number for each allocation, greater than all before it, in this life of the agent
	// and in earlier ones of this boot: a release that names it never hits the next owner of the same handle.
	Seq uint64
	// Reserved says that the owner is no endpoint but who has reserved the addresses. Expires is when that ends; zero for
	// a permanent reservation.
	Reserved bool
	Expires  time.Time
	// External says that another IPAM gave the addresses. As long as the owner has them ours does not give them out, and
	// when it has them no longer they do not rest.
	External bool
	// Kept says that the owner is gone, and its addresses are not released on purpose.
	Kept bool
	// Asked counts how often the owner has asked for them, so that who acts on an old [Allocator.List] does no harm.
	Asked int
}

// IsPermanent reports whether it is a permanent reservation. An endpoint may use its addresses.
func (a Allocation) IsPermanent() bool { return a.Reserved && a.Expires.IsZero() }

// Allocator owns the addresses of this node. Every method may be called concurrently, and none blocks but what writes
// to a [ReservationStore].
type Allocator struct {
	start time.Time // of its clock
	store ReservationStore

	mu   sync.Mutex // guards core, and all that it points to
	core core
}

// New returns an allocator without pools. Reservations are kept in the store; nil keeps them in memory only.
func New(store ReservationStore) *Allocator {
	if store == nil {
		store = noStore{}
	}
	return &Allocator{start: time.Now(), store: store, core: newCore()}
}

// lock locks mu, ends expired reservations, and returns now by the allocator's own clock, which cannot be set.
func (a *Allocator) lock() (now time.Duration) {
	a.mu.Lock()
	now = time.Since(a.start)
	a.core.expire(now)
	return now
}

func (a *Allocator) allocate(req Request, options reservationOptions) (Allocation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wall := time.Now()
	now := wall.Sub(a.start) // by the monotonic clock, which both times have, too
	a.core.expire(now)
	r, err := a.core.allocate(&req, options, now, wall)
	if err != nil {
		return Allocation{}, err
	}
	return r.Allocation, nil
}

// List shows what every owner has, in no order.
func (a *Allocator) List() []Allocation {
	a.lock()
	defer a.mu.Unlock()
	return a.core.owners.list()
}

// Lookup reports whether an address may be given out, now or later, and who has it, or "".
func (a *Allocator) Lookup(addr netip.Addr) (managed bool, owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.core.pools.index.owner(addr); r != nil {
		owner = r.Owner
	}
	b, e := a.core.pools.index.blockOf(addr), a.core.pools.index.known(addr)
	return !b.drained && (e == nil || e.state != nodeOwn), owner
}

// LacksFamily reports whether the owner has no address of a family that its pool has, and this node has a block of that
// family.
func (a *Allocator) LacksFamily(owner Handle) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.core.owners.records[owner]
	if r == nil || r.External || a.core.pools.byName[r.Pool] == nil {
		return false
	}
	p := a.core.pools.byName[r.Pool]
	for f := range families {
		if p.settings.has(f) && p.available(f) > 0 && !f.of(r.Addresses).IsValid() {
			return true
		}
	}
	return false
}

// Release frees all that the owner has, but for what is reserved, and puts it in quarantine. It is false when that was
// nothing.
func (a *Allocator) Release(owner Handle) bool { return a.release(owner, nil) }

// ReleaseListed is Release of what List or Allocate has shown, if the owner still has just that, by its Seq too, and
// has not asked for it again.
func (a *Allocator) ReleaseListed(allocation Allocation) bool {
	return a.release(allocation.Owner, &allocation)
}

// release is Release. listed is nil or all addresses that the owner may have.
func (a *Allocator) release(owner Handle, listed *Allocation) bool {
	now := a.lock()
	defer a.mu.Unlock()
	r := a.core.owners.records[owner]
	ok := r != nil && !r.Reserved && (listed == nil || r.Allocation == *listed)
	if ok {
		a.core.release(r, now)
	}
	return ok
}

// Keep records that an owner is gone and that what it has is not released on purpose.
func (a *Allocator) Keep(owner Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.core.owners.records[owner]; r != nil {
		r.Kept = true
	}
}

// Adopt records an owner's addresses from before the agent's start, or from another IPAM, inside a block or not.
// An address with another owner is [ErrInUse]; only a reservation of an earlier life of the agent gives way and
// ends. Its Seq is a new one. An owner without an address is ignored, and so is an owner that uses just the
// addresses of a permanent reservation.
func (a *Allocator) Adopt(allocation Allocation) error {
	now := a.lock()
	ended, err := a.core.adopt(allocation, now)
	a.mu.Unlock()
	for _, token := range ended {
		_ = a.store.Delete(token) // a remaining one gives way again after the next restart
	}
	return err
}

// Quarantine records that an address was released at the given time, in an earlier life of the agent.
func (a *Allocator) Quarantine(addr netip.Addr, released time.Time) {
	now := a.lock()
	defer a.mu.Unlock()
	// From now on the monotonic clock counts, and a time in the future is now.
	a.core.quarantine(addr, now-max(0, time.Since(released)))
}

// ofReservation is the request that names what is reserved, if it is for a reservation that there is.
func (a *Allocator) ofReservation(req Request) Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.core.reservations.find(req.Reservation); r != nil {
		req.Pool, req.Want = r.Pool, r.Addresses
	}
	return req
}

// isLive reports whether there is a reservation with the token.
func (a *Allocator) isLive(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.core.reservations.find(token) != nil
}

// Usage is what the node's pools have, and who has addresses.
type Usage struct {
	Pools       []PoolUsage // by name
	Allocations []Allocation
}

// PoolUsage is one pool.
type PoolUsage struct {
	Name   string
	Blocks []Block
}

// Usage shows pools and allocations, these in no order.
func (a *Allocator) Usage() Usage {
	a.lock()
	defer a.mu.Unlock()
	return Usage{Pools: a.core.pools.usage(), Allocations: a.core.owners.list()}
}

// ShownOwner is the owner as people and the API know it. Who reserves has a name of its own choice, though it looks
// like a handle.
func (a Allocation) ShownOwner() string {
	if a.Reserved {
		return string(a.Owner)
	}
	return a.Owner.String()
}
