package endpointmanager

import (
	"context"
	"time"
)

// Step is one cell's part in bringing an endpoint up or down. The manager knows no step by name; their order is one
// slice, [Steps].
//
// All methods are idempotent, may run concurrently for different endpoints and never for the same one, and stop when
// ctx ends. They run without any lock of the manager, so they may block.
type Step interface {
	// Name is the step's phase in traces and metrics: "ipam".
	Name() string

	// Attach does the step's part and returns ep with what the step adds to it (ipam: addresses and pool). When it or a later
	// step fails, Detach is called.
	Attach(ctx context.Context, ep Endpoint) (Endpoint, error)

	// Detach undoes Attach, whether it ran whole, in part or not at all. ep may lack what the step added, when the
	// agent died between Attach and the record of it: then the step finds its part by ep.Spec.Attachment.
	Detach(ctx context.Context, ep Endpoint, cfg DeleteConfig) error

	// Restore takes over, after a start of the agent, what Attach did in an earlier life of it, and makes anew what is not
	// as it should be: replaced names that, each with what was wrong ("program from_pod: 12 instead of 17"). It is also
	// how an endpoint is repaired. When it fails after a start, the endpoint is detached from every step and its record
	// removed.
	Restore(ctx context.Context, ep Endpoint) (replaced []string, err error)
}

// Steps are in the order of Attach; Detach runs in the reverse order.
type Steps []Step

// Pruner is a Step that owns things outside the agent's memory. Prune is called once at start, after every Restore
// and before the API serves, with what is alive: the step removes whatever bears its mark and belongs to none of it, and
// names each thing that it removed.
type Pruner interface {
	Prune(ctx context.Context, live []Endpoint) (removed []string, err error)
}

// Surveyor is a Step that can tell, for many endpoints in one look and without changing anything, which of them the
// kernel has lost for good: Restore would fail for these. Survey is called once at start, before any Restore.
type Surveyor interface {
	Survey(ctx context.Context, eps []Endpoint) (lost map[Attachment]error, err error)
}

// Rememberer is a Step that must know, at start, what was deleted lately. Remember is called once, before any
// Restore, oldest deletion first.
type Rememberer interface {
	Remember(deletions []Deletion)
}

// Deletion is what a tombstone tells.
type Deletion struct {
	Endpoint Endpoint // with the addresses it had; only the attachment when it was never known
	Config   DeleteConfig
	At       time.Time
}

// DeleteConfig travels with a deletion.
type DeleteConfig struct {
	// NoIPRelease keeps the address: creation failed for an address that the caller brought, a restored endpoint
	// cannot be brought back and its address was never taken, or it is the health endpoint.
	NoIPRelease bool
	// Began is when the caller that asked for the deletion began, on CLOCK_BOOTTIME: an ADD of the attachment that
	// began earlier is refused from then on. 0 when no caller asked: an undo, or the making of room for a new life.
	Began time.Duration
	// Incomplete says that a step which comes down before this one has failed, and that this Detach will come again:
	// what the other may still point at (an address) is kept until then.
	Incomplete bool
}
