package allocator_test

import (
	"testing"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
)

// with has an attachment of pod default/web allocate.
func with(t *testing.T, n *allocator.Allocator, owner allocator.Handle) allocator.Allocation {
	t.Helper()
	got, err := n.Allocate(allocator.Request{Owner: owner, PodHandle: "default.web"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantUsed(t *testing.T, n *allocator.Allocator, what string, want int) {
	t.Helper()
	if got := len(n.List()); got != want {
		t.Errorf("%s: %d owners, want %d", what, got, want)
	}
}

func TestReleasePodHandleWithLastOwner(t *testing.T) {
	n := podCIDR(t, "10.0.0.0/28")
	wantGot(t, n, "default.web", "10.0.0.2")
	with(t, n, "porin.c1.eth0")
	with(t, n, "porin.c2.eth0")
	n.Release("porin.c1.eth0")
	wantUsed(t, n, "the pod's older container is gone", 2)
	n.Release("porin.c2.eth0")
	wantUsed(t, n, "and so is the newer one", 0)
}

func TestReleaseSparesNewerPodHandle(t *testing.T) {
	n := podCIDR(t, "10.0.0.0/28")
	with(t, n, "porin.c1.eth0")
	if _, err := n.Reserve(allocator.Request{Owner: "default.web"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	n.Release("porin.c1.eth0")
	wantUsed(t, n, "for the pod's next container", 1)
}

func TestReleaseListedSparesNextOwner(t *testing.T) {
	n := podCIDR(t, "10.0.0.0/28")
	first := with(t, n, "porin.c1.eth0")
	n.Release("porin.c1.eth0")
	second := with(t, n, "porin.c1.eth0")
	if second.Seq <= first.Seq {
		t.Errorf("sequence number %d after %d", second.Seq, first.Seq)
	}
	if n.ReleaseListed(first) {
		t.Error("it was released by the number of its earlier life")
	}
	if !n.ReleaseListed(second) {
		t.Error("it was not released by its own number")
	}
	later := podCIDR(t, "10.0.0.0/28") // the agent's next life
	if third := with(t, later, "porin.c1.eth0"); third.Seq <= second.Seq {
		t.Errorf("sequence number %d after %d, in an earlier life of the agent", third.Seq, second.Seq)
	}
}
