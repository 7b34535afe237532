package endpoint

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

	// Attach does the step's part and returns ep with what the step adds to it: addresses and pool (ipam), the link
	// (link). Only these fields of the result are kept. When it or a later step fails, Detach is called. namespace is the
	// container's network namespace, valid during the call only; nil when the caller passed none.
	Attach(ctx context.Context, ep Endpoint, namespace *Namespace) (Endpoint, error)

	// Detach undoes Attach, whether it ran whole, in part or not at all. ep may lack what the step added, when the
	// agent died between Attach and the record of it: then the step finds its part by ep.Spec.Attachment. Host.Index may
	// be the link of another endpoint by now.
	Detach(ctx context.Context, ep Endpoint, cfg DeleteConfig) error

	// Restore takes over, after a start of the agent, the results of Attach in an earlier life of it, and restores parts
	// that are not as they should be: replaced names them, each with the fault ("program from_pod: 12 instead of 17"). It
	// is also how an endpoint is repaired; when a step fails, the later ones are not called. After a start a failure
	// that may pass is tried again. After the last try the endpoint is taken down; if most endpoints failed, all of these
	// are held. So fail only if the pod cannot live without the part.
	Restore(ctx context.Context, ep Endpoint) (replaced []string, err error)
}

// Steps are in the order of Attach; Detach runs in the reverse order.
type Steps []Step

// The interfaces below are for steps that need more. A step with things in the kernel needs Pruner, and a step that
// gives out resources Occupier; the others have one implementation each.

// Pruner is a Step that owns things outside the agent's memory. Prune is called at a start, after every Restore and
// before the API serves, with what is alive: the step removes whatever bears its mark and belongs to none of it, and
// names each thing that it removed.
type Pruner interface {
	Prune(ctx context.Context, live []Endpoint) (removed []string, err error)
}

// Renewer is a Step that shows the world when the latest ADD of an endpoint began. Renew is called when the same ADD
// has come again, before it is answered; the endpoint has the new start time.
type Renewer interface {
	Renew(ctx context.Context, ep Endpoint) error
}

// Updater is a Step that depends on [Endpoint.Metadata]. Update is called with the endpoint that has other metadata
// than before. When it fails, or what follows, it is called again with the endpoint as it was.
type Updater interface {
	Update(ctx context.Context, ep Endpoint) error
}

// Surveyor is a Step that can tell, for many endpoints in one look and without changing anything, which of them the
// kernel has lost for good: Restore would fail for these. Survey is called at a start, before any Restore.
type Surveyor interface {
	Survey(ctx context.Context, eps []Endpoint) (lost map[Attachment]error, err error)
}

// Finder is a Step that can list what the kernel has, without changing anything. Find is called at a start, and again
// after a failure: after attachments that were deleted meanwhile or are of another boot are taken down, and before
// anything else is restored or removed. It gets the attachments that the steps before it found, adds others, or
// completes theirs. An attachment that it cannot name is [Unnamed]. The manager finds by the ledger which of them are
// unknown.
type Finder interface {
	Find(ctx context.Context, found []Endpoint) ([]Endpoint, error)
}

// Occupier is a Step that gives out resources. After Occupy no other endpoint gets the endpoint's, until its Detach.
type Occupier interface {
	Occupy(ep Endpoint) error
}

// Rememberer is a Step that must know the recent deletions at start. Remember is called once, before any
// Restore, oldest deletion first.
type Rememberer interface {
	Remember(deletions []Deletion)
}

// Deletion is the content of a tombstone.
type Deletion struct {
	Endpoint Endpoint // with the addresses it had; only the attachment when it was never known
	Config   DeleteConfig
	At       time.Time
}

// DeleteConfig travels with a deletion.
type DeleteConfig struct {
	// NoIPRelease keeps the address: another IPAM gave it, or a restored endpoint cannot be brought back and its
	// address was never taken.
	NoIPRelease bool
	// Began is when the caller that asked for the deletion began, on CLOCK_BOOTTIME: an ADD of the attachment that
	// began earlier is refused from then on. 0 when no caller asked: an undo.
	Began time.Duration
	// Incomplete says that a step which comes down before this one has failed, and that this Detach will come again:
	// a resource that the other may still point at (an address) is kept until then.
	Incomplete bool
	// Force ends the endpoint even if a step fails. The caller gets the errors, nothing tries these steps again, and the
	// other steps are detached in full.
	Force bool `json:"-"`
	// Sweep also detaches every step of an attachment that the agent has no endpoint of: a link may be left, or addresses
	// that an IPAM plugin gave. The fields below say what the caller knows of it, as in [Spec].
	Sweep          bool       `json:",omitempty"`
	Network, NetNS string     `json:",omitempty"`
	IPAM           IPAMPlugin `json:",omitzero"`
}

// Subscriber hears of endpoints after the fact: without the manager's lock, one event at a time for one attachment, the
// end of a life before the beginning of the next, in no order relative to other subscribers. It is on the path of the
// caller's answer, so slow work goes to a loop of its own. It may read (endpointmanager.Lookup) and must not write
// (endpointmanager.Manager).
type Subscriber interface {
	EndpointCreated(Endpoint)
	EndpointDeleted(Endpoint, DeleteConfig)
	EndpointRestored(Endpoint)
	// EndpointUpdated is called when the endpoint has other metadata than before.
	EndpointUpdated(Endpoint)
}

// Observer is notified of each finished operation, failed ones too, and what its phases took. The rules of [Subscriber]
// hold.
type Observer interface{ Observe(Trace) }
