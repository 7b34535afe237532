package ipam

import (
	"context"
	"net/netip"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

// The faults that callers tell apart.
var (
	ErrExhausted     = fault.New(fault.Exhausted, "no free address")
	ErrInUse         = fault.New(fault.Conflict, "address in use")
	ErrQuarantined   = fault.New(fault.Unavailable, "address released a short while ago")
	ErrOutside       = fault.New(fault.Invalid, "address cannot be given out")
	ErrUnknownPool   = fault.New(fault.Invalid, "no such pool")
	ErrDelegated     = fault.New(fault.Invalid, "addresses come from another IPAM plugin, and none was given")
	ErrCutOff        = fault.New(fault.Unavailable, "this node has been cut off from the cluster's store for too long to give out addresses")
	ErrNoReservation = fault.New(fault.Conflict, "no such reservation, or it is over")
	ErrBlockInUse    = fault.New(fault.Conflict, "addresses of the block are in use")
	ErrNobodys       = fault.New(fault.NotFound, "address of nobody")
)

// DefaultPool is the pool of whoever asks for none.
const DefaultPool = "default"

// Request asks for addresses.
type Request struct {
	Owner Handle
	// Legacy is another handle of the owner: what it owns is released with the last owner that names it, if it was there
	// before that owner.
	Legacy Handle
	Pool   string // "" is [DefaultPool]
	// Want asks for these very addresses. A family that is zero here gets any, if the pool has that family.
	Want endpointmanager.Addresses
	// Reservation is the token of a reservation whose addresses the owner takes over.
	Reservation string
}

// ExternalPool is the pool in which addresses of another IPAM are shown.
const ExternalPool = "external"

// Allocation is what one owner has. It is a value, and two can be compared with ==.
type Allocation struct {
	Owner     Handle
	Legacy    Handle
	Pool      string
	Addresses endpointmanager.Addresses
	Since     time.Time
	// Seq is another one each time that somebody gets something, and greater than all before it, in this life of the agent
	// and in earlier ones of this boot: a release that names it never hits the next owner of the same handle.
	Seq uint64
	// Expires is when a reservation ends; zero for what is no reservation.
	Expires time.Time
	// External says that another IPAM gave the addresses. As long as the owner has them ours gives them to nobody, and
	// when it has them no longer they do not rest.
	External bool
	// Kept says that the owner is gone, and its addresses are not released on purpose.
	Kept bool
	// Asked counts how often the owner has asked for them, so that who acts on an old [Allocator.List] does no harm.
	Asked int
}

// Allocator owns the addresses of this node. Every method may be called concurrently. None blocks for long but Allocate,
// and that only when nothing is free and it asks others: who still names what has rested, or the cluster for more of a
// pool. Else an allocation is a few operations in memory, in constant time however much is in use.
type Allocator interface {
	// Allocate gives the owner one address of each family of the pool, or none and one of the package's errors. An
	// owner that has addresses already gets them again, unless it wants others: that is [ErrInUse].
	Allocate(ctx context.Context, req Request) (Allocation, error)

	// Adopt records what an owner has had since before the agent started, or has from another IPAM, inside a pool's
	// prefixes or not. An address that another one has is [ErrInUse]. Its Seq is a new one.
	Adopt(a Allocation) error

	// Release frees all that the owner has and puts it in quarantine. It is false when that was nothing.
	Release(owner Handle) bool

	// ReleaseListed is Release of what List or Allocate has shown, if the owner still has just that, by its Seq too, and has
	// not asked for it again.
	ReleaseListed(a Allocation) bool

	// Keep records that an owner is gone and that what it has is not released on purpose.
	Keep(owner Handle)

	// List shows what every owner has, in no order.
	List() []Allocation

	// Quarantine records that an address was released at the given time, in an earlier life of the agent.
	Quarantine(addr netip.Addr, released time.Time)

	// Usage shows pools and allocations.
	Usage() v1.IPAM
}
