package multipool_test

import (
	"errors"
	"slices"
	"testing"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/multipool"
)

// resource is what the agent of a machine says of one.
func resource(m *machine, name string) capacity.Resource {
	all := multipool.NewSource(m.controller).Resources()
	i := slices.IndexFunc(all, func(r capacity.Resource) bool { return r.Name == name })
	if i < 0 {
		return capacity.Resource{}
	}
	return all[i]
}

// TestResourceSingleAddresses fills a pool of two blocks of one address each: the first node lacks nothing before no
// block is left.
func TestResourceSingleAddresses(t *testing.T) {
	const name = "addresses/default/ipv4"
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 32, "10.0.0.0/31")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	if got := resource(one, name); !got.Refilled || got.Err != nil {
		t.Errorf("a full block, and another one to be had: %+v, want it to be refilled", got)
	}
	w.mustAllocate(two)
	w.refused(one, multipool.ErrNoBlock)
	w.wait("it says that no block is left", func() bool {
		got := resource(one, name)
		return !got.Refilled && errors.Is(got.Err, multipool.ErrNoBlock)
	})
	if got := resource(two, name); !got.Refilled {
		t.Errorf("on a node that has not asked for another block: %+v", got)
	}
	w.endPods(one)
	w.mustAllocate(one)
	w.endPods(two)
	w.mustAllocate(one)
	w.wait("it is refilled again", func() bool { got := resource(one, name); return got.Refilled && got.Err == nil })
}

func TestResourceInRecovery(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 32, "10.0.0.0/28")
	one, two := w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	w.wait("both are connected", func() bool { return one.controller.Status().Connected && two.controller.Status().Connected })
	w.stop(two) // so that the recovery does not end
	w.beginRecovery()
	w.wait("it says why there is no more", func() bool { return errors.Is(resource(one, "addresses/default/ipv4").Err, multipool.ErrRecovery) })
}

// TestResourceContested is examined without the store.
func TestResourceContested(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	w.contestedCopy(one)
	if got := resource(one, "node-key"); !errors.Is(got.Err, multipool.ErrContested) || got.Finding != "node-contested" {
		t.Errorf("resource %+v, want one that the finding node-contested tells", got)
	}
	info := w.breakable("Info.Get")
	info.fail()
	found, err := multipool.NewChecker(w.backend, one.controller).Examine(t.Context(), "")
	if !errors.Is(err, cluster.ErrUnavailable) || !slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Kind == "node-contested" }) {
		t.Errorf("found %+v, error %v, want node-contested without the store, too", found, err)
	}
}
