package quota

import (
	"context"
	"fmt"
	"sync"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// ErrFull is returned when a namespace has as many endpoints as it may have.
var ErrFull = fault.New(fault.Exhausted, "the namespace has no endpoint left")

// Step counts endpoints by namespace, and refuses one too many.
type Step struct {
	limit int

	mu      sync.Mutex // guards the field below
	counted map[endpoint.Attachment]string
}

var _ endpoint.Step = (*Step)(nil)

// New returns a step that has counted nothing.
func New(cfg Config) *Step {
	return &Step{limit: cfg.Endpoints, counted: map[endpoint.Attachment]string{}}
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "quota" }

// Attach counts the endpoint.
func (s *Step) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	namespace := ep.Spec.Pod.Namespace
	_, known := s.counted[ep.Spec.Attachment]
	if used := s.used()[namespace]; !known && s.limit > 0 && used >= s.limit {
		return ep, fmt.Errorf("namespace %s has %d endpoints on this node: %w", namespace, used, ErrFull)
	}
	s.counted[ep.Spec.Attachment] = namespace
	return ep, nil
}

// Detach stops to count the endpoint. One that was never counted is a success.
func (s *Step) Detach(_ context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counted, ep.Spec.Attachment)
	return nil
}

// Restore counts an endpoint of an earlier life of the agent. It refuses none: a lower limit takes no pod down.
func (s *Step) Restore(_ context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[ep.Spec.Attachment] = ep.Spec.Pod.Namespace
	return nil, nil
}

// Used returns how many endpoints each namespace has.
func (s *Step) Used() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used()
}

// used expects the lock.
func (s *Step) used() map[string]int {
	used := map[string]int{}
	for _, namespace := range s.counted {
		used[namespace]++
	}
	return used
}

// counts reports whether the endpoint of the attachment is counted.
func (s *Step) counts(a endpoint.Attachment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.counted[a]
	return ok
}
