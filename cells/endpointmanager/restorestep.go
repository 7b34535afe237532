package endpointmanager

import (
	"context"
	"time"

	"porin.dev/porin/internal/fault"
)

// A living endpoint is not given up for a fault that may pass: the kernel short of memory, a list that changed while it
// was read.
const (
	restoreTries = 7                     // in more than a second
	restoreWait  = 20 * time.Millisecond // after the first try; it doubles
)

// restoreStep tries until the step succeeds, says that it never will, or has failed too often.
func restoreStep(ctx context.Context, step Step, ep Endpoint) (replaced []string, err error) {
	for try := range restoreTries {
		anew, err := step.Restore(ctx, ep)
		replaced = append(replaced, anew...)
		if err == nil || final(err) || try == restoreTries-1 {
			return replaced, err
		}
		select {
		case <-time.After(restoreWait << try):
		case <-ctx.Done():
			return replaced, ctx.Err()
		}
	}
	return replaced, err
}

// final tells whether the same try again must fail again.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Deadline:
		return true
	}
	return false
}
