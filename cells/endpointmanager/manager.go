package endpointmanager

import (
	"context"
)

// Manager changes endpoints. All methods may be called concurrently; calls for one attachment take their turn.
type Manager interface {
	// Create brings up an endpoint and returns it when every step has succeeded, or undoes it all. It stops early
	// when ctx ends, and returns when what it did is undone. namespace is the container's network namespace, or nil; Create
	// closes it in any case.
	// The same Spec again returns the endpoint that is there; another Spec for a living attachment replaces it, and one
	// for the same interface of the same pod in a newer container supersedes the older container's.
	// One that began before the deletion of its attachment is [ErrDeleted], one that began before the creation for a
	// newer container of its pod [ErrSuperseded].
	Create(ctx context.Context, spec Spec, namespace *Namespace) (Endpoint, error)

	// Delete takes down the endpoint of the attachment. One that is unknown is a success, and remembered. One that began
	// after the deletion did is another life, and stays. A deletion goes on after ctx has ended.
	Delete(ctx context.Context, attachment Attachment, cfg DeleteConfig) DeleteResult

	// DeleteContainer takes down every endpoint of the container. None is a success.
	DeleteContainer(ctx context.Context, containerID string, cfg DeleteConfig) DeleteResult

	// Repair makes anew what the steps and the ledger lack of an endpoint that is ready: each step's Restore. Any other
	// endpoint is [ErrNotReady] or [ErrNotFound].
	Repair(ctx context.Context, attachment Attachment) error

	// Coming returns the attachments of the creations that are under way, also of those that wait for something of before
	// to go and have no endpoint yet.
	Coming() []Attachment

	// Collect takes down what a network no longer has.
	Collect(ctx context.Context, request GC) GCResult
}

// DeleteResult counts what a deletion did. What is in Errors stays on record and is tried again, but for [ErrStopped]
// and [ErrPending]: after these the caller asks again.
type DeleteResult struct {
	Deleted int
	Spared  int // endpoints that began after the deletion did, and stay
	Errors  []error
}

// Lookup reads endpoints. It knows no subscriber, so a subscriber may have it.
type Lookup interface {
	// Get finds one endpoint, or returns [ErrNotFound]. A [Ref] that fits several endpoints is [ErrAmbiguous].
	Get(ref Ref) (Endpoint, error)
	// List returns all endpoints by ascending ID.
	List() []Endpoint
}

// Service is a [Manager] with a life of its own: Start before the first call, Stop after the last.
type Service interface {
	Manager
	// Start opens the ledger and brings back what it holds; it blocks until that is done. The steps must have been
	// started.
	Start(ctx context.Context) error
	// Stop waits for what is under way and closes the ledger. The endpoints stay as they are.
	Stop(ctx context.Context) error
	// Restored says what Start found.
	Restored() Report
}
