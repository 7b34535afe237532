package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// stepRunner runs the steps of one endpoint, or of all. The steps undo themselves in [deleter.detach].
type stepRunner struct {
	list  endpoint.Steps
	table *Table
	log   *slog.Logger
}

// attach runs the steps in order, as far as they succeed.
func (s *stepRunner) attach(ctx context.Context, w *worker, namespace *endpoint.Namespace, watch *stopwatch) error {
	for _, step := range s.list {
		w.attached++ // also what fails is detached: its own way back may have failed as well
		added, err := step.Attach(ctx, w.ep, namespace)
		if err == nil {
			err = w.show(withAdded(w.ep, added))
		}
		if err == nil {
			err = ctx.Err() // nobody waits for the rest
		}
		if err := watch.lap(step.Name(), err); err != nil {
			return fmt.Errorf("%s: %w", step.Name(), err)
		}
	}
	return ctx.Err()
}

// withAdded is the endpoint with all that a step may add.
func withAdded(ep, added endpoint.Endpoint) endpoint.Endpoint {
	ep.Addresses, ep.Pool, ep.IPAMResult = added.Addresses, added.Pool, added.IPAMResult
	ep.LinkKind, ep.Host, ep.Container, ep.MTU = added.LinkKind, added.Host, added.Container, added.MTU
	return ep
}

// restore runs every step's Restore in order, as far as they succeed.
func (s *stepRunner) restore(ctx context.Context, w *worker, watch *stopwatch) (replaced []string, err error) {
	for _, step := range s.list {
		anew, err := step.Restore(ctx, w.ep)
		replaced = append(replaced, anew...)
		if watch.lap(step.Name(), err) != nil {
			return replaced, fmt.Errorf("restore endpoint %s: %s: %w", w.attachment, step.Name(), err)
		}
	}
	return replaced, nil
}

// renew has the steps show that the latest ADD of the endpoint began later.
func (s *stepRunner) renew(ctx context.Context, renewed endpoint.Endpoint) error {
	for _, step := range s.list {
		if r, ok := step.(endpoint.Renewer); ok {
			if err := r.Renew(ctx, renewed); err != nil {
				return fmt.Errorf("%s: %w", step.Name(), err)
			}
		}
	}
	return nil
}

// update has the steps follow the metadata of the endpoint.
func (s *stepRunner) update(ctx context.Context, ep endpoint.Endpoint) error {
	for _, step := range s.list {
		if u, ok := step.(endpoint.Updater); ok {
			if err := u.Update(ctx, ep); err != nil {
				return fmt.Errorf("%s: %w", step.Name(), err)
			}
		}
	}
	return nil
}

// occupy keeps what the endpoint has from everybody else.
func (s *stepRunner) occupy(ep endpoint.Endpoint) {
	for _, step := range s.list {
		if holder, ok := step.(endpoint.Occupier); ok {
			if err := holder.Occupy(ep); err != nil {
				s.log.Warn("part of a held attachment belongs to somebody else", "step", step.Name(), attrs(ep), "error", err)
			}
		}
	}
}

// remember tells the steps what was deleted lately.
func (s *stepRunner) remember(deletions []endpoint.Deletion) {
	for _, step := range s.list {
		if r, ok := step.(endpoint.Rememberer); ok {
			r.Remember(deletions)
		}
	}
}

// findLost returns which endpoints the kernel has lost for good, and whether all steps could say so.
func (s *stepRunner) findLost(ctx context.Context, eps []endpoint.Endpoint) (lost map[endpoint.Attachment]error, complete bool) {
	lost, complete = map[endpoint.Attachment]error{}, true
	for _, step := range s.list {
		surveyor, ok := step.(endpoint.Surveyor)
		if !ok {
			continue
		}
		found, err := surveyor.Survey(ctx, eps)
		if err != nil { // each Restore finds out for itself
			s.log.Warn("endpoints are brought back unchecked", "step", step.Name(), "error", err)
			complete = false
		}
		for a, err := range found {
			lost[a] = errors.Join(lost[a], fmt.Errorf("%s: %w", step.Name(), err))
		}
	}
	return lost, complete
}

// find lists what the kernel has. Without that list nothing may be removed from it.
func (s *stepRunner) find(ctx context.Context) (found []endpoint.Endpoint, err error) {
	for _, step := range s.list {
		finder, ok := step.(endpoint.Finder)
		if !ok {
			continue
		}
		for try := range restoreTries {
			var next []endpoint.Endpoint
			if next, err = finder.Find(ctx, slices.Clone(found)); err == nil {
				found = next
				break
			}
			select {
			case <-time.After(restoreWait << try):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list what the kernel has, before anything is removed from it: %s: %w", step.Name(), err)
		}
	}
	return found, nil
}

// prune removes what bears Porin's mark and belongs to nobody, and names it.
func (s *stepRunner) prune(ctx context.Context) (removed []string, err error) {
	live := s.table.List()
	var errs []error
	for _, step := range s.list {
		if p, ok := step.(endpoint.Pruner); ok {
			names, err := p.Prune(ctx, live)
			removed = append(removed, names...)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: remove what belongs to nobody: %w", step.Name(), err))
			}
		}
	}
	return removed, errors.Join(errs...)
}
