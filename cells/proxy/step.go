package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Step is the proxy's [endpoint.Step]: it ends an endpoint's connections when it goes. It stands between policy's and
// datapath's, so nothing is redirected any more when it runs.
type Step struct {
	proxy EndpointCloser
	log   *slog.Logger
}

// EndpointCloser ends an endpoint's connections through a proxy.
type EndpointCloser interface {
	// CloseEndpoint returns when they have ended, or with an error soon after ctx ends. It may be called for an endpoint
	// that has none.
	CloseEndpoint(ctx context.Context, id uint16) error
}

// CloseTimeout is how long a deletion waits for the proxy to end the endpoint's connections. By then nothing is
// redirected any more, and a proxy that is late closes them when it decides about them next: [Kernel.Version] says that
// the endpoint is gone.
const CloseTimeout = 2 * time.Second

// NewStep returns the step.
func NewStep(c EndpointCloser, log *slog.Logger) *Step { return &Step{proxy: c, log: log} }

// Name is "proxy".
func (s *Step) Name() string { return "proxy" }

// Attach does nothing: policies decide about redirection.
func (s *Step) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	return ep, nil
}

// Detach implements [endpoint.Step]. A proxy that does not answer holds up no deletion for longer than [CloseTimeout].
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	within, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	err := s.proxy.CloseEndpoint(within, ep.ID)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("end the connections through the proxy: %w", err)
	}
	if err != nil {
		s.log.Warn("the proxy has not ended the connections of an endpoint that goes: they end when it decides about them next", "endpoint", ep.ID, "error", err)
	}
	return nil
}

// Restore does nothing, as Attach.
func (s *Step) Restore(context.Context, endpoint.Endpoint) ([]string, error) { return nil, nil }
