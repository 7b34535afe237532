package hostfilter_test

import (
	"context"
	"fmt"
	"testing"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

func TestWatch(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	desired := hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: toPorts()}}}
	h.apply(t, desired)
	for _, change := range []string{"flush ruleset", "delete table inet porin", "flush chain inet porin input", "insert rule inet porin forward accept", "flush set inet porin restricted"} {
		ctx, cancel := context.WithCancel(t.Context())
		changes, err := h.filter.Watch(ctx)
		must(t, err)
		h.rules(t, "add table inet porins\ndelete table inet porins\nadd table ip porin\ndelete table ip porin\n", "nft", "-f", "-")
		h.rules(t, change+"\n", "nft", "-f", "-")
		<-changes
		before := h.generation(t)
		h.apply(t, desired)
		if h.generation(t) == before {
			t.Errorf("%s: a change is told before it is there", change)
		}
		cancel()
		for range changes {
		}
	}
}

// A table that another program makes, such as from a saved ruleset, goes although no pod is restricted.
func TestWatchWithoutPods(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link}}})
	saved := h.list(t)
	h.apply(t, hostfilter.Desired{})
	h.rules(t, saved, "nft", "-f", "-") // without a watcher
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := h.filter.Watch(ctx)
	must(t, err)
	h.apply(t, hostfilter.Desired{})
	if text := h.list(t); text != "" {
		t.Errorf("at the beginning there is\n%s", text)
	}
	h.rules(t, saved, "nft", "-f", "-")
	testutil.Eventually(t, func() error {
		select {
		case <-changes:
			h.apply(t, hostfilter.Desired{})
		default:
		}
		if text := h.list(t); text != "" {
			return fmt.Errorf("nobody is restricted, and there is\n%s", text)
		}
		return nil
	})
	cancel()
	for range changes {
	}
}
