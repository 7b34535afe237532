package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/task"
)

// interval is the time between two writes of a node's endpoints. The first one after a while without changes waits for
// nothing.
const interval = time.Second

// publisher keeps this node's groups in the store as its endpoints are. It is an [endpoint.Subscriber].
type publisher struct {
	store     cluster.Published[cluster.EndpointGroup]
	follower  *Follower
	endpoints endpointmanager.Lookup
	log       *slog.Logger
	task      *task.Task

	// Of the task.
	last time.Time // when something was written
	left map[uint16]bool
}

var _ endpoint.Subscriber = (*publisher)(nil)

func newPublisher(store cluster.Published[cluster.EndpointGroup], f *Follower, endpoints endpointmanager.Lookup, log *slog.Logger) *publisher {
	p := &publisher{store: store, follower: f, endpoints: endpoints, log: log, left: map[uint16]bool{}}
	p.task = task.Every(log, task.Round{Name: "node-publish-endpoints", Run: p.round, Interval: time.Minute, Retry: interval, MaxRetry: 30 * time.Second})
	f.ownChanged = p.task.Trigger
	return p
}

// EndpointCreated implements endpoint.Subscriber.
func (p *publisher) EndpointCreated(endpoint.Endpoint) { p.task.Trigger() }

// EndpointRestored implements endpoint.Subscriber.
func (p *publisher) EndpointRestored(endpoint.Endpoint) { p.task.Trigger() }

// EndpointUpdated implements endpoint.Subscriber.
func (p *publisher) EndpointUpdated(endpoint.Endpoint) { p.task.Trigger() }

// EndpointDeleted implements endpoint.Subscriber.
func (p *publisher) EndpointDeleted(endpoint.Endpoint, endpoint.DeleteConfig) { p.task.Trigger() }

// round writes what has changed.
func (p *publisher) round(ctx context.Context) error {
	if wait := interval - time.Since(p.last); !p.last.IsZero() && wait > 0 {
		if err := task.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	node, stored, ok := p.follower.ownGroups()
	if !ok {
		return nil // the follower triggers a round when it is known
	}
	var errs []error
	for _, g := range plan(node, cluster.GroupSize, stored, p.desired()) {
		p.last = time.Now()
		if err := p.write(ctx, g); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *publisher) write(ctx context.Context, g cluster.EndpointGroup) (err error) {
	if len(g.Endpoints) == 0 {
		err = p.store.Delete(ctx, g)
	} else if g, err = p.store.Put(ctx, g); err == nil {
		p.follower.wrote(g)
	}
	if errors.Is(err, cluster.ErrExists) || errors.Is(err, cluster.ErrConflict) {
		return nil // the watch will tell what is there, and another round follows
	}
	if err != nil {
		return fmt.Errorf("publish %d endpoints: %w", len(g.Endpoints), err)
	}
	return nil
}

// desired are the endpoints that the others are to know.
func (p *publisher) desired() (all []published) {
	for _, ep := range p.endpoints.List() {
		one, ok, err := publishedOf(ep, p.follower.namespaces != nil)
		switch {
		case ok:
			all = append(all, one)
		case (err != nil || one.size > maxGroupBytes) && !p.left[ep.ID]:
			p.left[ep.ID] = true
			p.log.Warn("an endpoint is not published, so policies of other nodes do not select it: its labels are too large, or cannot be read",
				"endpoint", ep.Spec.Attachment.String(), "pod", ep.Spec.Pod.String(), "bytes", one.size, "error", err)
		}
	}
	return all
}
