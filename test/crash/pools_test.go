package crash

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// poolOperations are the operations of a node with pools of the cluster, in a store of its own whose every write is an
// effect.
var poolOperations = []row{
	{"pools, ADD from an own block", 1, agentAdd},
	{"pools, ADD that claims a block first", 1, claimingAdd},
	{"pools, DEL", 1, agentDel},
	{"pools, a pool is disabled, and its blocks are given back", 1, giveBack},
	{"pools, a pool is made, and deleted", 1, makeAndDelete},
	{"pools, start with two endpoints, a half made one and a deletion record", 2, ofBlocks(agentRestore)},
	{"pools, start with an empty store", 0, ofBlocks(emptyStore)},
	{"pools, orderly end", 1, agentStop},
}

// The pools: the node claims blocks of the first ahead, and blocks of the second only when asked.
var (
	ahead = v1.PoolSpec{Name: "default", Prefixes: prefixes("10.64.0.0/24", "fd00:64::/120"), Quarantine: new(time.Duration(0))}
	asked = v1.PoolSpec{Name: "blue", Prefixes: prefixes("10.65.0.0/24", "fd00:65::/120"), Quarantine: new(time.Duration(0))}
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// newPoolScene has a node with the pools.
func newPoolScene(t *testing.T, count int) *scene {
	t.Helper()
	s := prepareScene(t, testutil.NewFabric)
	s.mode = []string{"--ipam-mode=multi-pool", "--ipam-pre-allocate=1", "--ipam-default-pool=10.64.0.0/24,fd00:64::/120"}
	s.begin()
	s.pools = &pools{agent: s.agent}
	for _, p := range []v1.PoolSpec{ahead, asked} {
		if err := s.pools.put(p); err != nil {
			t.Fatal(err)
		}
	}
	s.settleIn(count)
	return s
}

// ofBlocks is the operation interrupted at the effects that it has in this mode alone.
func ofBlocks(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		o := of(s)
		o.only = func(e effect) bool {
			return strings.HasPrefix(filepath.Base(e.on), "store") || strings.HasPrefix(filepath.Base(e.on), "multipool.json") || strings.HasPrefix(filepath.Base(e.on), "node-key")
		}
		return o
	}
}

// claimingAdd is an ADD from a pool that the node has no block of.
func claimingAdd(s *scene) operation {
	o := agentAdd(s)
	prepare := o.prepare
	o.prepare = func() error {
		err := errors.Join(prepare(), s.pools.awaitRested(), s.pools.empty(asked))
		s.guests[0].Args = [][2]string{{"PORIN_POOL", asked.Name}}
		return err
	}
	return o
}

// giveBack: nothing of a disabled pool stays claimed when its last address is free, whenever the agent dies on the way.
func giveBack(s *scene) operation {
	off := asked
	off.Disabled = true
	return operation{
		victim: s.agents,
		prepare: func() error {
			c := &testutil.Container{Namespace: s.spare[0], ID: testutil.NewContainerID(), IfName: "eth0", Args: [][2]string{{"PORIN_POOL", asked.Name}}}
			if err := s.pools.put(asked); err != nil {
				return err
			}
			_, err := s.add(c)
			return errors.Join(err, s.del(c), s.pools.awaitRested())
		},
		run: func() { _ = s.pools.put(off) },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart(), s.check("after the restart", nil)); err != nil {
				return err
			}
			return errors.Join(s.pools.awaitRested(), s.pools.put(off), s.pools.awaitNone(asked.Name), s.check("after it was disabled", nil))
		},
	}
}

// makeAndDelete: a pool is there or not, and the same call once more makes it so.
func makeAndDelete(s *scene) operation {
	next := v1.PoolSpec{Name: "next", Prefixes: prefixes("10.66.0.0/24")}
	remove := func() error { return s.agent.Do(http.MethodDelete, "/v1/pool/"+next.Name, nil, nil) }
	return operation{
		victim:  s.agents,
		prepare: func() error { return nil },
		run: func() {
			if s.pools.put(next) == nil {
				_ = remove()
			}
		},
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart(), s.check("after the restart", nil)); err != nil {
				return err
			}
			if err := s.pools.put(next); err != nil {
				return err
			}
			return errors.Join(remove(), s.pools.areOnly(asked.Name, ahead.Name))
		},
	}
}

// emptyStore: a start that makes the store, the pool and the first claims may be cut short.
func emptyStore(s *scene) operation {
	o := agentFirstStart(s)
	o.prepare = func() error {
		s.agent.End()
		return os.RemoveAll(s.storeDir())
	}
	return o
}

func (s *scene) storeDir() string { return filepath.Join(s.node.Dir, "store") }
