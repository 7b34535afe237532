package main

import (
	"context"
	"fmt"
	"io"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// ipamRecover shows the recovery, after it has begun or ended one. The exit code is 0 also while one is under way.
func ipamRecover(ctx context.Context, s *session, _ []string) error {
	var state v1.Recovery
	var err error
	switch {
	case s.begin && s.end:
		return usageOf([]string{"ipam", "recover"}, "want one of --begin and --end")
	case s.force && !s.end:
		return usageOf([]string{"ipam", "recover"}, "--force: want --end, too")
	case s.begin || s.end:
		state, err = s.client.ChangeRecovery(ctx, v1.RecoveryRequest{Begin: s.begin, End: s.end, Force: s.force})
	default:
		state, err = s.client.Recovery(ctx)
	}
	return s.show(state, err, func(w io.Writer) {
		if state.Requested {
			_, _ = fmt.Fprintln(w, "Requested: the store does not answer. This agent begins the recovery when it reaches the store, before it claims anything.\n"+
				"Run this on every other node, too, before the store is started.")
			return
		}
		if !state.UnderWay {
			_, _ = fmt.Fprintln(w, "No recovery is under way.")
			return
		}
		row(w, "Recovery:", sinceText(state.Began))
		row(w, "Reason:", state.Reason)
		for _, n := range state.Unwritten {
			line := n.Node
			for _, other := range n.Conflicts {
				line += "; it uses addresses of blocks of " + other + ": delete that node if its machine is gone, else the pods on one of the two"
			}
			row(w, "Not written:", line)
		}
	})
}

// sinceText is "since 2026-11-20 11:00:00 UTC".
func sinceText(began time.Time) string {
	return "since " + began.Format("2006-01-02 15:04:05 MST")
}
