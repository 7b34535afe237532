package multipool_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/watchable"
)

// kubernetesNode is the Node of a machine, as the API has it.
type kubernetesNode struct{ watchable.Value[nodeState] }

type nodeState struct {
	uid    string
	exists bool
	labels map[string]string
}

func (n *kubernetesNode) Node() (uid string, exists bool, labels map[string]string, changed <-chan struct{}) {
	s, changed := n.Get()
	return s.uid, s.exists, s.labels, changed
}

func (n *kubernetesNode) create(uid string) { n.Set(nodeState{uid: uid, exists: true}) }

func (n *kubernetesNode) delete() {
	s, _ := n.Get()
	n.Set(nodeState{uid: s.uid})
}

// hasUID waits until the record of the machine's node has the UID of the Node.
func (w *world) hasUID(m *machine, uid string) {
	w.Helper()
	w.wait("the record has the UID "+uid, func() bool {
		n, err := w.backend.Nodes.Get(w.Context(), m.controller.Status().Node)
		return err == nil && n.NodeUID == uid && !n.Deleting
	})
}

// deleteRecord deletes the record of the machine's node while its agent is stopped.
func (w *world) deleteRecord(m *machine) {
	w.Helper()
	w.stop(m)
	id := m.controller.Status().Node
	n, err := w.backend.Nodes.Get(w.Context(), id)
	if err == nil {
		err = w.backend.Nodes.Delete(w.Context(), n)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.wait("the record is gone", func() bool {
		_, err := w.backend.Nodes.Get(w.Context(), id)
		return errors.Is(err, cluster.ErrNotFound)
	})
}

// TestNodeCreatedAgain: the node stays the same one, and its record gets the UID of the new Node.
func TestNodeCreatedAgain(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		node := one.kubernetes
		node.create("node-1")
		w.mustAllocate(one)
		id, before := one.controller.Status().Node, claims(w.blocks())
		w.hasUID(one, "node-1")
		node.create("node-2")
		w.hasUID(one, "node-2")
		w.stop(one)
		node.create("node-3") // while no agent runs
		w.start(one)
		w.hasUID(one, "node-3")
		if now := one.controller.Status().Node; now != id || claims(w.blocks())[0] != before[0] {
			t.Errorf("node %s with claims %v, before %s with %v", now, claims(w.blocks()), id, before)
		}
		w.neverRecovered()
	})
}

// TestNodeCreatedAgainWithoutRecord: the node goes on as a new incarnation, and claims the block in use.
func TestNodeCreatedAgainWithoutRecord(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 28, "10.0.0.0/24")
		one := w.machine("one", 1)
		node := one.kubernetes
		node.create("node-1")
		w.mustAllocate(one)
		id, before := one.controller.Status().Node, w.blocks()
		w.hasUID(one, "node-1")
		w.deleteRecord(one)
		if err := w.backend.Blocks.Delete(t.Context(), before[0].CIDR, before[0].Claim); err != nil {
			t.Fatal(err)
		}
		node.create("node-2")
		w.start(one)
		w.wait("the new incarnation has the block", func() bool {
			now, blocks := one.controller.Status().Node, w.blocks()
			return now.Key != id.Key && len(blocks) == 1 && blocks[0].Owner == now && blocks[0].CIDR == before[0].CIDR
		})
		w.hasUID(one, "node-2")
		w.neverRecovered()
	})
}

// TestNodeCreatedAgainBlockTaken: a block in use that another node has claimed meanwhile is held and reported.
func TestNodeCreatedAgainBlockTaken(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	one := w.machine("one", 1)
	node := one.kubernetes
	node.create("node-1")
	addr := w.mustAllocate(one)
	id := one.controller.Status().Node
	w.hasUID(one, "node-1")
	w.stop(one)
	if err := w.nodeAdmin().Delete(t.Context(), id, true); err != nil { // porin node gc
		t.Fatal(err)
	}
	two := w.machine("two", 2)
	w.wait("two has the block", func() bool {
		_ = two.controller.Refill(t.Context(), multipool.DefaultPool)
		return len(w.blocks()) == 1 && w.blocks()[0].Owner == two.controller.Status().Node
	})
	node.create("node-2")
	w.start(one)
	w.wait("the block is in conflict", func() bool {
		blocks := one.controller.Status().Blocks
		return len(blocks) == 1 && blocks[0].State == "conflict" && blocks[0].OtherOwner == two.controller.Status().Node.String()
	})
	if got := one.addresses.all(); len(got) != 1 || got[0] != addr {
		t.Errorf("addresses %v, want that of the pod, %s", got, addr)
	}
	w.neverRecovered()
}

// TestNodeRecordLostWithSameUID: the store was set back.
func TestNodeRecordLostWithSameUID(t *testing.T) {
	w := newWorld(t, strict(t))
	w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	one.kubernetes.create("node-1")
	w.mustAllocate(one)
	w.hasUID(one, "node-1")
	w.deleteRecord(one)
	w.start(one)
	w.endRecovery()
	w.hasUID(one, "node-1")
}

// TestNodeDeleted: pods keep their addresses, and the node claims nothing until its Node is created again.
func TestNodeDeleted(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.cfg.PreAllocate = 0
		w.pool("default", 28, "10.0.0.0/27") // two blocks
		one := w.machine("one", 1)
		node := one.kubernetes
		node.create("node-1")
		for range 16 {
			w.mustAllocate(one) // a block
		}
		w.hasUID(one, "node-1")
		node.delete()
		w.refused(one, multipool.ErrNodeDeleted)
		w.wait("its health says so", func() bool { return multipool.Condition(one.controller).State == supervisor.Degraded })
		w.stop(one)
		w.start(one)
		w.wait("it is connected", func() bool { return one.controller.Status().Connected })
		w.refused(one, multipool.ErrNodeDeleted)
		if len(w.blocks()) != 1 || len(one.addresses.all()) != 16 {
			t.Errorf("blocks %v, addresses in use %v", w.blocks(), one.addresses.all())
		}

		id := one.controller.Status().Node
		w.wait("its records are deleted", func() bool { // porin node gc
			err := w.nodeAdmin().Delete(t.Context(), id, true)
			return err == nil || errors.Is(err, admin.ErrNoNode)
		})
		w.wait("it has noticed", func() bool { return !one.controller.Status().Connected })
		w.refused(one, multipool.ErrNodeDeleted)
		for n, err := range w.backend.Nodes.All(t.Context()) {
			if err != nil || !n.Deleting {
				t.Errorf("the record %+v is there again, error %v", n, err)
			}
		}
		node.create("node-2")
		w.hasUID(one, "node-2")
		w.wait("its block is claimed again", func() bool { return len(w.blocks()) == 1 })
		w.mustAllocate(one)
		w.neverRecovered()
		w.wait("its health is good", func() bool { return multipool.Condition(one.controller).State == supervisor.OK })
	})
}

// TestNoPool: without a pool every ADD fails, and the health says so.
func TestNoPool(t *testing.T) {
	w := newWorld(t, strict(t))
	one := w.machine("one", 1)
	w.wait("its health says so", func() bool { return multipool.Condition(one.controller).State == supervisor.Degraded })
	w.pool("default", 28, "10.0.0.0/24")
	w.wait("its health is good", func() bool { return multipool.Condition(one.controller).State == supervisor.OK })
}

// TestNodeGoneGivesOutNothing: when the Node or the node's record is deleted, the node gives out no address before the
// store has confirmed its blocks.
func TestNodeGoneGivesOutNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		gone func(w *world, m *machine)
	}{
		{"the Node is deleted", func(w *world, m *machine) { m.kubernetes.delete() }},
		{"the Node is created again", func(w *world, m *machine) { m.kubernetes.create("node-2") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, strict(t))
			w.cfg.PreAllocate = 0
			w.pool("default", 24, "10.0.0.0/24")
			one := w.machine("one", 1)
			one.kubernetes.create("node-1")
			w.mustAllocate(one)
			w.hasUID(one, "node-1")
			one.network.Cut() // its token was withdrawn, say
			c.gone(w, one)
			w.givesOutNothing(one)
			w.stop(one)
			w.start(one)
			if addr, err := w.allocate(one, time.Second); err == nil {
				t.Errorf("%s is given out after a restart", addr)
			}
			one.kubernetes.create("node-2")
			one.network.Heal()
			w.mustAllocate(one)
			w.neverRecovered()
		})
	}
}

// TestRecordGoneGivesOutNothing: the watch tells that the node's record is gone, and no request is answered any more.
func TestRecordGoneGivesOutNothing(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.pool("default", 24, "10.0.0.0/24")
	reads := w.breakable("Nodes.Get")
	one := w.machine("one", 1)
	one.kubernetes.create("node-1")
	w.mustAllocate(one)
	w.hasUID(one, "node-1")
	n, err := w.backend.Nodes.Get(t.Context(), one.controller.Status().Node)
	if err != nil {
		t.Fatal(err)
	}
	reads.fail()
	if err := w.backend.Nodes.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.givesOutNothing(one)
	reads.mend()
	w.endRecovery() // the record of the same Node is gone
	w.mustAllocate(one)
}

// givesOutNothing waits until the machine gives out no address of its block of 256.
func (w *world) givesOutNothing(m *machine) {
	w.Helper()
	w.wait("it gives out nothing", func() bool {
		_, err := w.allocate(m, time.Second)
		return err != nil
	})
	if len(m.addresses.all()) == 256 {
		w.Error("the block was full")
	}
}

// TestNodeLabels: labels of the Node select pools, as they change, and after a restart without the API.
func TestNodeLabels(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.PreAllocate = 0
	w.cfg.Labels = map[string]string{"zone": "of the flag"}
	p := cluster.Pool{Name: "default", IPv4BlockBits: 28, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, NodeSelector: map[string]string{"zone": "a"}}
	if _, err := admin.NewPools(w.backend).Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	one := w.machine("one", 1)
	node := one.kubernetes
	node.create("node-1")
	w.wait("no pool is for the node", func() bool {
		err := one.controller.Refill(t.Context(), multipool.DefaultPool)
		return err != nil && len(w.blocks()) == 0
	})
	node.Set(nodeState{"node-1", true, map[string]string{"zone": "a"}})
	w.mustAllocate(one)
	w.stop(one)
	one.network.Cut()
	one.kubernetes = &kubernetesNode{} // it is not known
	w.start(one)
	w.mustAllocate(one) // of its block
	one.network.Heal()
	w.stop(one)
	one.kubernetes = node
	w.start(one)
	node.Set(nodeState{"node-1", true, map[string]string{"zone": "b"}})
	w.wait("the node gives back the block when it is empty", func() bool {
		for _, addr := range one.addresses.all() {
			w.release(one, addr)
		}
		return len(w.blocks()) == 0
	})
}
