package endpointmanager

import (
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
)

// Describer adds what another cell knows of an endpoint to its description in the API: the datapath its counters.
// It is called for each endpoint of each answer, concurrently, and must be fast.
type Describer interface {
	Describe(ep Endpoint, description *v1.Endpoint)
}

// Describe contributes the [Describer] that newDescriber builds: endpointmanager.Describe(newDescriber).
func Describe(newDescriber any) fx.Option {
	return fx.Provide(fx.Annotate(newDescriber, fx.As(new(Describer)), fx.ResultTags(`group:"endpoint.describers"`)))
}
