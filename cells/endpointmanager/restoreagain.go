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

// bringBackAgain tries again the endpoints whose Restore has failed, all of them before the next wait: a fault of the node costs
// a start the waiting of one endpoint.
func (m *manager) bringBackAgain(ctx, undo context.Context, list []*revived) error {
	for try := range restoreTries - 1 {
		var again []*revived
		for _, one := range list {
			if one.failed != nil && !final(one.failed) {
				again = append(again, one)
			}
		}
		if len(again) == 0 {
			return nil
		}
		select {
		case <-time.After(restoreWait << try):
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, one := range again {
			one.failed = nil
			if err := m.bringBack(ctx, undo, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// final tells whether the same try again must fail again.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Deadline:
		return true
	}
	return false
}
