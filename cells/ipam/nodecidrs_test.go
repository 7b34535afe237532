package ipam

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/watchable"
)

// nodeObject is a Node in tests.
type nodeObject struct{ watchable.Value[PodCIDRs] }

func (n *nodeObject) PodCIDRs() (PodCIDRs, <-chan struct{}) { return n.Get() }

func (n *nodeObject) set(now []string, former []string, err error) {
	parse := func(texts []string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	n.Set(PodCIDRs{Now: parse(now), Former: parse(former), Err: err})
}

// nodeCIDRs has an allocator of a node's podCIDRs in a bubble. It is restored with the task.
func nodeCIDRs(t *testing.T, object *nodeObject) (*allocator.Source, *NodeCIDRs) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.FromNode = true
	a, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := NewNodeCIDRs(object, a, 0, slog.New(slog.DiscardHandler))
	return NewSource(cfg, a, n), n
}

func (n *NodeCIDRs) start(t *testing.T) (stop func()) {
	t.Helper()
	n.task.Start(nil)
	synctest.Wait()
	return func() { _ = n.task.Stop(t.Context()) }
}

func (n *NodeCIDRs) wantBlocks(t *testing.T, when string, want ...string) {
	t.Helper()
	got, _ := n.Blocks()
	texts := []string{}
	for _, cidr := range got {
		texts = append(texts, cidr.String())
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%s: blocks %v, want %v", when, texts, want)
	}
}

func TestNodeCIDRsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &nodeObject{}
		object.set(nil, nil, errors.New("Node n1 has no spec.podCIDRs"))
		source, n := nodeCIDRs(t, object)
		defer n.start(t)()
		began := time.Now()
		_, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"})
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "no spec.podCIDRs") || time.Since(began) != cidrWait {
			t.Errorf("without podCIDRs: %v after %s, want the reason after %s", err, time.Since(began), cidrWait)
		}
		time.AfterFunc(time.Second, func() { object.set([]string{"10.1.0.0/24", "fd00::/64"}, nil, nil) })
		got, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"})
		if err != nil || got.Addresses.IPv4.String() != "10.1.0.2" || !got.Addresses.IPv6.IsValid() {
			t.Errorf("podCIDRs come while the ADD waits: %+v, %v, want one address of each family", got, err)
		}
	})
}

func TestNodeCIDRsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &nodeObject{}
		object.set([]string{"10.1.0.0/24"}, nil, nil)
		source, n := nodeCIDRs(t, object)
		defer n.start(t)()
		if _, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"}); err != nil {
			t.Fatal(err)
		}
		object.set(nil, []string{"10.1.0.0/24"}, errors.New("Node n1 was deleted"))
		synctest.Wait()
		n.wantBlocks(t, "the Node was deleted", "10.1.0.0/24")
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "b"}); err == nil || !strings.Contains(err.Error(), "was deleted") {
			t.Errorf("without the Node: %+v, %v, want the reason", got, err)
		}
		object.set([]string{"10.2.0.0/24"}, []string{"10.1.0.0/24"}, nil)
		synctest.Wait()
		n.wantBlocks(t, "it has another podCIDR", "10.2.0.0/24", "10.1.0.0/24")
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "b"}); err != nil || got.Addresses.IPv4.String() != "10.2.0.2" {
			t.Errorf("of the new podCIDR: %+v, %v, want 10.2.0.2", got, err)
		}
		source.Allocator().Release("a") // with no quarantine
		time.Sleep(2 * drainInterval)
		synctest.Wait()
		n.wantBlocks(t, "the former one is free", "10.2.0.0/24")
		object.set([]string{"10.1.0.0/24"}, []string{"10.2.0.0/24"}, nil)
		synctest.Wait()
		n.wantBlocks(t, "the former one is back", "10.1.0.0/24", "10.2.0.0/24")
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "c"}); err != nil || got.Addresses.IPv4.String() != "10.1.0.2" {
			t.Errorf("of the podCIDR that is back: %+v, %v, want 10.1.0.2", got, err)
		}
	})
}

// TestNodeCIDRsRestore: a pod has an address of a former podCIDR over a restart.
func TestNodeCIDRsRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &nodeObject{}
		object.set([]string{"10.2.0.0/24"}, []string{"10.1.0.0/24", "10.3.0.0/24"}, nil)
		source, n := nodeCIDRs(t, object)
		n.wantBlocks(t, "before the restore", "10.2.0.0/24")
		held := allocator.Allocation{Owner: "a", Pool: allocator.DefaultPool}
		held.Addresses.IPv4 = netip.MustParseAddr("10.1.0.5")
		if err := source.Allocator().Adopt(held); err != nil {
			t.Fatal(err)
		}
		defer n.start(t)()
		n.wantBlocks(t, "after the restore", "10.2.0.0/24", "10.1.0.0/24")
	})
}

// TestNodeCIDRsBad: a podCIDR that overlaps, or is no prefix for pods, is refused with its reason, and the others
// count.
func TestNodeCIDRsBad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &nodeObject{}
		object.set([]string{"10.1.0.0/24", "10.1.0.0/25", "127.0.0.0/24"}, nil, nil)
		source, n := nodeCIDRs(t, object)
		defer n.start(t)()
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"}); err != nil || got.Addresses.IPv4.String() != "10.1.0.2" {
			t.Errorf("%+v, %v, want an address of the good podCIDR", got, err)
		}
		if err := n.Refill(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "overlaps") || !strings.Contains(err.Error(), "unicast") {
			t.Errorf("refill: %v, want both faults", err)
		}
	})
}

// TestNodeCIDRsSaved: after a start the podCIDRs of before are the node's, and nothing is allocated of them until the
// API server has answered.
func TestNodeCIDRsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &nodeObject{}
		object.set([]string{"10.1.0.0/24"}, nil, errors.New("Node n1 has not been read"))
		source, n := nodeCIDRs(t, object)
		n.wantBlocks(t, "after the start", "10.1.0.0/24")
		defer n.start(t)()
		n.wantBlocks(t, "after the restore", "10.1.0.0/24")
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"}); err == nil || !strings.Contains(err.Error(), "not been read") {
			t.Errorf("before the answer: %+v, %v, want the reason", got, err)
		}
		object.set([]string{"10.2.0.0/24"}, []string{"10.1.0.0/24"}, nil)
		if got, err := source.Allocate(t.Context(), allocator.Request{Owner: "a"}); err != nil || got.Addresses.IPv4.String() != "10.2.0.2" {
			t.Errorf("after the answer: %+v, %v, want 10.2.0.2", got, err)
		}
	})
}
