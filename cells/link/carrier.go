package link

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// carrierRetry is the time between two looks at a link that has no carrier yet.
const carrierRetry = time.Millisecond

// WaitForCarrier returns when the interface passes packets. The kernel drops packets for a while after both ends of a pair are
// up, until its link-watch work has run for each of them. Since Linux 6.8 a question for the link runs that work before it is
// answered (rtnl_getlink); earlier kernels do it in their own time, mostly within a millisecond.
func WaitForCarrier(ctx context.Context, handle *netlink.Handle, index int) error {
	for {
		l, err := handle.LinkByIndex(index)
		if isNotFound(err) {
			return fmt.Errorf("link %d: %w", index, ErrNoLink)
		}
		if err != nil {
			return fmt.Errorf("get link %d: %w", index, err)
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		select {
		case <-time.After(carrierRetry):
		case <-ctx.Done():
			return fmt.Errorf("wait for the carrier of %s: %w", l.Attrs().Name, ctx.Err())
		}
	}
}
