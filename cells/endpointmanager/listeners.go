package endpointmanager

import (
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// listeners are those who are told of endpoints. Nothing here holds a lock: a subscriber may read the table. Who is
// told that an endpoint is deleted, and when, is in delete.go.
type listeners struct {
	subscribers []endpoint.Subscriber
	observers   []endpoint.Observer
}

func (l *listeners) created(w *worker) {
	w.told = true
	for _, s := range l.subscribers {
		s.EndpointCreated(w.ep)
	}
}

func (l *listeners) restored(ep endpoint.Endpoint) {
	for _, s := range l.subscribers {
		s.EndpointRestored(ep)
	}
}

func (l *listeners) updated(before, ep endpoint.Endpoint) {
	if before.Metadata == ep.Metadata {
		return
	}
	for _, s := range l.subscribers {
		s.EndpointUpdated(ep)
	}
}

func (l *listeners) observe(trace endpoint.Trace) {
	for _, o := range l.observers {
		o.Observe(trace)
	}
}

// Describer adds what another cell knows of an endpoint to its description in the API: the datapath its counters.
// It is called for each endpoint of each answer, concurrently, and must be fast.
type Describer interface {
	Describe(ep endpoint.Endpoint, description *v1.Endpoint)
}

// Describe contributes the [Describer] that newDescriber builds: endpointmanager.Describe(newDescriber).
func Describe(newDescriber any) fx.Option {
	return fx.Provide(fx.Annotate(newDescriber, fx.As(new(Describer)), fx.ResultTags(`group:"endpoint.describers"`)))
}

// Subscribe contributes the [endpoint.Subscriber] that newSubscriber builds: endpointmanager.Subscribe(newProber).
func Subscribe(newSubscriber any) fx.Option {
	return fx.Provide(fx.Annotate(newSubscriber, fx.As(new(endpoint.Subscriber)), fx.ResultTags(`group:"endpoint.subscribers"`)))
}

// Observe contributes the [endpoint.Observer] that newObserver builds: endpointmanager.Observe(newHistograms).
func Observe(newObserver any) fx.Option {
	return fx.Provide(fx.Annotate(newObserver, fx.As(new(endpoint.Observer)), fx.ResultTags(`group:"endpoint.observers"`)))
}
