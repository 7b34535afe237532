package endpointmanager

import (
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

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
