package ipam_test

import (
	"testing"
	"time"

	"porin.dev/porin/cells/ipam"
)

// with has an attachment of pod default/web allocate.
func with(t *testing.T, n ipam.Node, owner ipam.Handle) ipam.Allocation {
	t.Helper()
	got, err := n.Allocator.Allocate(t.Context(), ipam.Request{Owner: owner, Legacy: "default.web"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantUsed(t *testing.T, n ipam.Node, what string, want int) {
	t.Helper()
	if got := len(n.Allocator.List()); got != want {
		t.Errorf("%s: %d owners, want %d", what, got, want)
	}
}

func TestTheLegacyHandleIsReleasedWithTheLastWhoNamesIt(t *testing.T) {
	n := podCIDR(t, nil, "10.0.0.0/28")
	wantGot(t, n, "default.web", "10.0.0.2")
	with(t, n, "porin.c1.eth0")
	with(t, n, "porin.c2.eth0")
	n.Allocator.Release("porin.c1.eth0")
	wantUsed(t, n, "the pod's older container is gone", 2)
	n.Allocator.Release("porin.c2.eth0")
	wantUsed(t, n, "and so is the newer one", 0)
}

func TestALateReleaseSparesWhatTheLegacyHandleHasGotSince(t *testing.T) {
	n := podCIDR(t, nil, "10.0.0.0/28")
	with(t, n, "porin.c1.eth0")
	if _, err := n.Reserver.Reserve(t.Context(), ipam.Request{Owner: "default.web"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	n.Allocator.Release("porin.c1.eth0")
	wantUsed(t, n, "for the pod's next container", 1)
}

func TestALateReleaseSparesTheNextOwnerOfAHandle(t *testing.T) {
	n := podCIDR(t, nil, "10.0.0.0/28")
	first := with(t, n, "porin.c1.eth0")
	n.Allocator.Release("porin.c1.eth0")
	second := with(t, n, "porin.c1.eth0")
	if second.Seq <= first.Seq {
		t.Errorf("sequence number %d after %d", second.Seq, first.Seq)
	}
	if n.Allocator.ReleaseListed(first) {
		t.Error("it was released by the number of its earlier life")
	}
	if !n.Allocator.ReleaseListed(second) {
		t.Error("it was not released by its own number")
	}
	later := podCIDR(t, nil, "10.0.0.0/28") // the agent's next life
	if third := with(t, later, "porin.c1.eth0"); third.Seq <= second.Seq {
		t.Errorf("sequence number %d after %d, in an earlier life of the agent", third.Seq, second.Seq)
	}
}
