package policy

import (
	"context"
	"fmt"
	"slices"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/model"
)

// Step is policy's part in an endpoint's life: it comes after ipam, for it needs the addresses, and before the datapath
// lets packets pass.
type Step struct{ queue *Queue }

var (
	_ endpoint.Step     = (*Step)(nil)
	_ endpoint.Pruner   = (*Step)(nil)
	_ endpoint.Updater  = (*Step)(nil)
	_ endpoint.Occupier = (*Step)(nil)
)

// NewStep returns the step that enforces the queue's policies.
func NewStep(q *Queue) *Step { return &Step{q} }

// Name implements endpoint.Step.
func (s *Step) Name() string { return "policy" }

// Attach returns when the policies of the endpoint, and the policies of others that its addresses match, are in the
// datapath. After an error Detach takes the endpoint back.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	return ep, s.set(ctx, ep)
}

// Update implements endpoint.Updater. When the policies that follow from the labels cannot be written, the endpoint has
// its earlier labels again.
func (s *Step) Update(ctx context.Context, ep endpoint.Endpoint) error {
	before := s.queue.view.known(keyOf(ep.Spec.Attachment))
	err := s.set(ctx, ep)
	if err != nil && before != nil {
		s.queue.collect(setEndpoint(*before))
	}
	return err
}

func (s *Step) set(ctx context.Context, ep endpoint.Endpoint) error {
	desired, err := desiredOf(ep)
	if err != nil {
		return err
	}
	s.queue.names.known.Admit(ep.ID)
	return s.queue.set(ctx, setEndpoint(desired))
}

// Detach returns when the datapath knows nothing of the endpoint any more, so that its addresses may be another's.
// Before everything is restored the datapath is as the previous agent has left it.
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	gone := removeEndpoint(keyOf(ep.Spec.Attachment))
	if !s.queue.isOpen() {
		s.queue.collect(gone)
	} else if err := s.queue.set(ctx, gone); err != nil {
		return err
	}
	s.queue.names.removeEndpoint(ep.ID)
	return s.queue.enforcer.RemoveEndpoint(ep.ID) // which the queue does not know of when a previous agent attached it
}

// Restore collects the endpoint: [Step.Prune] writes all of them at once. Later, it is a repair.
func (s *Step) Restore(ctx context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if s.queue.isOpen() {
		return nil, s.set(ctx, ep)
	}
	return nil, s.collect(ep)
}

func (s *Step) collect(ep endpoint.Endpoint) error {
	desired, err := desiredOf(ep)
	if err != nil {
		return err
	}
	s.queue.collect(setEndpoint(desired))
	return nil
}

// Occupy keeps the policies of an endpoint that the manager holds in force. The labels of an endpoint that only the
// kernel knows are not known, so the engine does not get it: the enforcer denies it everything if it was restricted.
func (s *Step) Occupy(ep endpoint.Endpoint) error {
	if ep.Spec.Pod == (endpoint.Pod{}) && ep.Metadata == "" && ep.Spec.Kind == endpoint.KindPod {
		return nil
	}
	return s.collect(ep)
}

// Prune writes the restored endpoints, for the first time after a start. It removes the engine's endpoints that are not
// alive.
func (s *Step) Prune(ctx context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	s.queue.names.load(live)
	if err := s.queue.Open(ctx); err != nil {
		return nil, fmt.Errorf("policies are not in the datapath, which has those of before: %w", err)
	}
	alive := map[string]bool{}
	for _, ep := range live {
		alive[keyOf(ep.Spec.Attachment)] = true
	}
	var gone update
	for _, key := range s.queue.view.localEndpoints() {
		if !alive[key] {
			gone.endpoints.set(key, nil)
			removed = append(removed, "policy of "+key)
		}
	}
	if len(removed) == 0 {
		return nil, nil
	}
	slices.Sort(removed)
	return removed, s.queue.set(ctx, gone)
}

// keyOf is the endpoint's key in the engine: a pod may have several interfaces.
func keyOf(a endpoint.Attachment) string { return a.String() }

// desiredOf is the endpoint as the engine knows it. Without labels it is a pod that has none.
func desiredOf(ep endpoint.Endpoint) (desiredEndpoint, error) {
	metadata, err := endpoint.DecodeMetadata(ep.Metadata)
	if err != nil {
		return desiredEndpoint{}, fmt.Errorf("endpoint %s: %w", ep.Spec.Attachment, err)
	}
	metadata = metadata.ForNamespace(ep.Spec.Pod.Namespace)
	s := desiredEndpoint{local: Local{ID: ep.ID, Link: ep.Host.Index}, Endpoint: model.Endpoint{
		Key: keyOf(ep.Spec.Attachment), Kind: kindOfEndpoint(ep.Spec.Kind), Local: ep.Spec.Kind == endpoint.KindPod, Namespace: ep.Spec.Pod.Namespace, Name: ep.Spec.Pod.Name,
		NamespaceLabels: metadata.NamespaceLabels, Labels: metadata.Labels, Addresses: ep.Addresses.List(),
		Audit: metadata.Audit != nil && *metadata.Audit,
	}}
	if metadata.Unknown && s.Kind == model.Pod {
		s.Kind = model.Init
	}
	for _, p := range metadata.NamedPorts {
		protocol, err := model.ParseProtocol(p.Protocol)
		if err != nil {
			return desiredEndpoint{}, fmt.Errorf("endpoint %s: port %s: %w", ep.Spec.Attachment, p.Name, err)
		}
		s.NamedPorts = append(s.NamedPorts, model.NamedPort{Name: p.Name, Protocol: protocol, Number: p.Port})
	}
	return s, nil
}

func kindOfEndpoint(kind endpoint.Kind) model.EndpointKind {
	if kind == endpoint.KindHealth {
		return model.Health
	}
	return model.Pod
}
