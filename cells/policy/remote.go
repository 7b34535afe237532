package policy

import (
	"context"
	"net/netip"
	"time"

	"porin.dev/porin/cells/policy/model"
)

// RemoteChange is what is new of other nodes.
type RemoteChange struct {
	// Set are endpoints of other nodes. Their keys begin with [RemotePrefix], and what is local of them is ignored.
	Set    []model.Endpoint
	Remove []string // keys
	// SetBlocks and RemoveBlocks are the ranges that pods of other nodes have their addresses of. Ranges do not overlap.
	// An address in them that no endpoint has is of a pod that nothing is known of.
	SetBlocks, RemoveBlocks []netip.Prefix
}

// RemotePrefix begins the keys of endpoints of other nodes.
const RemotePrefix = "remote/"

// Remote is told of the endpoints of other nodes.
type Remote interface {
	// SetRemote queues the change: it is written soon, or when everything is restored, and a failed write is tried again.
	// It does not block.
	SetRemote(change RemoteChange)
}

// RemoteSource knows the endpoints of other nodes.
type RemoteSource interface {
	// Begin tells the remote of them from now on. The channel is closed when it was told of all of them, or of all known
	// ones while the source does not answer. It is called once, and does not block.
	Begin(remote Remote) (complete <-chan struct{})
}

// remoteTimeout is how long the first write of policies waits for the endpoints of other nodes at the most: the
// kernel's entries of them would be removed. A [RemoteSource] takes less.
const remoteTimeout = 15 * time.Second

// awaitRemote returns when the endpoints of other nodes are known, or cannot be.
func (q *Queue) awaitRemote(ctx context.Context) {
	if q.remote == nil {
		return
	}
	timeout := time.NewTimer(remoteTimeout)
	defer timeout.Stop()
	select {
	case <-q.remote:
	case <-ctx.Done():
	case <-timeout.C:
		q.log.Warn("the endpoints of other nodes are not known yet: policies that select them let nobody of them through until they are", "waited", remoteTimeout)
	}
}

// SetRemote implements [Remote].
func (q *Queue) SetRemote(change RemoteChange) {
	var u update
	for _, key := range change.Remove {
		u.endpoints.set(key, nil)
	}
	for _, ep := range change.Set {
		ep.Local = false
		u.endpoints.set(ep.Key, &desiredEndpoint{Endpoint: ep})
	}
	for _, cidr := range change.RemoveBlocks {
		u.unmanaged.set(cidr, nil)
	}
	for _, cidr := range change.SetBlocks {
		u.unmanaged.set(cidr, &struct{}{})
	}
	q.collect(u)
}
