package hostfilter_test

import (
	"context"
	"testing"

	"porin.dev/porin/cells/datapath/hostfilter"
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
