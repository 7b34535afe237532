package endpointmanagertest

import (
	"context"
	"fmt"
	"slices"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// Delete implements endpointmanager.Manager.
func (m *Manager) Delete(ctx context.Context, a endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult {
	cfg.Began = since(cfg.Began)
	m.calls.recordDelete(a, cfg.Began)
	return m.remove(ctx, a, cfg)
}

// DeleteContainer implements endpointmanager.Manager.
func (m *Manager) DeleteContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) (sum endpointmanager.DeleteResult) {
	cfg.Began = since(cfg.Began)
	m.calls.recordDelete(endpoint.Attachment{ContainerID: containerID}, cfg.Began)
	for _, ep := range m.List() {
		switch {
		case ep.Spec.Attachment.ContainerID != containerID:
		case ep.Spec.Kind != endpoint.KindPod:
			sum.Skipped++
		default:
			sum = add(sum, m.remove(ctx, ep.Spec.Attachment, cfg))
		}
	}
	return sum
}

// Collect implements endpointmanager.Manager, without a limit of what one call may take down.
func (m *Manager) Collect(ctx context.Context, gc endpointmanager.GC) (result endpointmanager.GCResult) {
	gc.Began = since(gc.Began)
	for _, ep := range m.List() {
		if a := ep.Spec.Attachment; ep.Spec.Network == gc.Network && !gc.Valid[a] && ep.Spec.Began < gc.Began {
			result.Stale = append(result.Stale, a)
		}
	}
	if gc.DryRun {
		return result
	}
	for _, a := range result.Stale {
		result.DeleteResult = add(result.DeleteResult, m.Delete(ctx, a, endpoint.DeleteConfig{Began: gc.Began}))
	}
	return result
}

func add(sum, other endpointmanager.DeleteResult) endpointmanager.DeleteResult {
	sum.Deleted += other.Deleted
	sum.Skipped += other.Skipped
	sum.Errors = append(sum.Errors, other.Errors...)
	sum.GivenUp = append(sum.GivenUp, other.GivenUp...)
	return sum
}

// remove takes the attachment's turn and takes down its endpoint. It goes on after ctx has ended.
func (m *Manager) remove(ctx context.Context, a endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult {
	done := make(chan endpointmanager.DeleteResult, 1)
	go func() {
		leave, _ := m.working.Acquire(context.Background(), a)
		defer leave()
		done <- m.takeDown(a, cfg)
	}()
	select {
	case result := <-done:
		return result
	case <-ctx.Done():
		return endpointmanager.DeleteResult{Errors: []error{fmt.Errorf("delete endpoint %s: %w: %w", a, endpointmanager.ErrPending, ctx.Err())}}
	}
}

// takeDown detaches every step, in the attachment's turn.
func (m *Manager) takeDown(a endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult {
	ep, err := m.Get(endpoint.ByAttachment(a))
	switch {
	case err != nil && !cfg.Sweep:
		return endpointmanager.DeleteResult{}
	case err != nil: // whatever is left of it goes
		unknown := endpoint.Endpoint{ID: m.nextID(), Spec: endpoint.Spec{
			Attachment: a, Network: cfg.Network, NetNS: cfg.NetNS, IPAM: cfg.IPAM, ExternalIPAM: cfg.IPAM != (endpoint.IPAMPlugin{}),
		}, State: endpoint.Disconnecting}
		return endpointmanager.DeleteResult{Errors: m.detach(unknown, m.steps, cfg)}
	case ep.State != endpoint.Disconnecting && ep.Spec.Began > cfg.Began:
		return endpointmanager.DeleteResult{Skipped: 1}
	}
	cfg.Sweep, cfg.Network, cfg.NetNS, cfg.IPAM = false, "", "", endpoint.IPAMPlugin{}
	ep.State = endpoint.Disconnecting
	m.endpoints.Put(ep)
	errs := m.detach(ep, m.steps, cfg)
	var givenUp []error
	if cfg.Force {
		givenUp, errs = errs, nil
	}
	if m.finish(ep, cfg, errs); len(errs) > 0 {
		return endpointmanager.DeleteResult{Errors: errs}
	}
	return endpointmanager.DeleteResult{Deleted: 1, GivenUp: givenUp}
}

// detach runs the steps in the reverse order, even when one fails.
func (m *Manager) detach(ep endpoint.Endpoint, steps endpoint.Steps, cfg endpoint.DeleteConfig) (errs []error) {
	cfg.NoIPRelease = cfg.NoIPRelease || ep.Spec.ExternalIPAM
	for _, step := range slices.Backward(steps) {
		if err := step.Detach(context.Background(), ep, cfg); err != nil {
			errs = append(errs, fmt.Errorf("%s: detach %s: %w", step.Name(), ep.Spec.Attachment, err))
			cfg.Incomplete = !cfg.Force
		}
	}
	return errs
}

// finish removes the endpoint when nothing failed. Else it stays, until it is deleted again.
func (m *Manager) finish(ep endpoint.Endpoint, cfg endpoint.DeleteConfig, failed []error) {
	if len(failed) > 0 {
		ep.State = endpoint.Disconnecting
		m.endpoints.Put(ep)
		return
	}
	m.endpoints.Delete(ep.ID)
	ep.State = endpoint.Disconnected
	m.listeners.deleted(ep, cfg)
}
