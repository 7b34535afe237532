package proxy

import (
	"context"
	"fmt"

	"porin.dev/porin/cells/endpoint"
)

// Step is the proxy's [endpoint.Step]: it ends an endpoint's connections when it goes. It stands between those of policy and datapath, so
// nothing is redirected any more by then.
type Step struct{ proxy Closer }

// Closer ends an endpoint's connections through a proxy.
type Closer interface {
	// CloseEndpoint returns when they have ended, or with an error when ctx ends before. It may be called for an endpoint that has none.
	CloseEndpoint(ctx context.Context, id uint16) error
}

// NewStep returns the step.
func NewStep(c Closer) *Step { return &Step{proxy: c} }

// Name is "proxy".
func (s *Step) Name() string { return "proxy" }

// Attach does nothing: what is redirected is the policies' matter.
func (s *Step) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	return ep, nil
}

// Detach implements [endpoint.Step].
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	if err := s.proxy.CloseEndpoint(ctx, ep.ID); err != nil {
		return fmt.Errorf("end the connections through the proxy: %w", err)
	}
	return nil
}

// Restore does nothing, as Attach.
func (s *Step) Restore(context.Context, endpoint.Endpoint) ([]string, error) { return nil, nil }
