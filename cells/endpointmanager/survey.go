package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/task"
)

// survey returns which endpoints the kernel has lost for good, and whether all steps could say so.
func survey(ctx context.Context, steps endpoint.Steps, eps []endpoint.Endpoint, log *slog.Logger) (lost map[endpoint.Attachment]error, complete bool) {
	lost, complete = map[endpoint.Attachment]error{}, true
	for _, step := range steps {
		surveyor, ok := step.(endpoint.Surveyor)
		if !ok {
			continue
		}
		found, err := surveyor.Survey(ctx, eps)
		if err != nil { // each Restore finds out for itself
			log.Warn("endpoints are brought back unchecked", "step", step.Name(), "error", err)
			complete = false
		}
		for a, err := range found {
			lost[a] = errors.Join(lost[a], fmt.Errorf("%s: %w", step.Name(), err))
		}
	}
	return lost, complete
}

// find lists the attachments of the kernel. Without that list nothing may be removed from it.
func find(ctx context.Context, steps endpoint.Steps) (found []endpoint.Endpoint, err error) {
	for _, step := range steps {
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
			if err := task.Sleep(ctx, restoreWait<<try); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list what the kernel has, before anything is removed from it: %s: %w", step.Name(), err)
		}
	}
	return found, nil
}

// prune removes leftovers: things with Porin's mark that belong to no living endpoint. It returns their names.
func prune(ctx context.Context, steps endpoint.Steps, live []endpoint.Endpoint) (removed []string, err error) {
	var errs []error
	for _, step := range steps {
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
