package blocks_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/ipam/localblocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/story"
)

// TestStories runs the stories of nodes that share pools: each with a manager and an allocator, on one store.
func TestStories(t *testing.T) {
	story.Run(t, func(env *testscript.Env) *world {
		w := &world{store: storetest.New(t), dir: env.WorkDir, nodes: map[string]*node{}}
		env.Defer(w.end)
		return w
	}, map[string]story.Command[*world]{
		"pool": (*world).pool, "large-pool": (*world).largePool, "delete-pool": (*world).deletePool,
		"node": (*world).node, "boots": (*world).boots, "restarts": (*world).restarts, "dies": (*world).dies,
		"cut": (*world).cut, "heal": (*world).heal, "pass": (*world).pass,
		"allocate": (*world).allocate, "release": (*world).release, "owned": (*world).owned, "where": (*world).where,
	})
}

// world is a cluster, and its time.
type world struct {
	store store.Store
	dir   string
	nodes map[string]*node
	ahead atomic.Int64 // of its clock before the real one, in ns
}

// node is one of its nodes.
type node struct {
	name    string
	labels  map[string]string
	network *network
	sides   ipam.Node
	kept    []ipam.Allocation // what is in use while no agent runs
	manager *blocks.Manager   // nil while no agent runs
	stop    func()
}

func (w *world) clock() time.Duration { return boottime.Now() + time.Duration(w.ahead.Load()) }

func (w *world) end() {
	for _, n := range w.nodes {
		n.stop()
		n.network.heal()
	}
}

// start begins a life of the agent: what was in use is taken again before it holds blocks.
func (w *world) start(n *node) error {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	sides, err := ipam.NewNode(cfg)
	if err != nil {
		return err
	}
	for _, a := range n.kept {
		if err := sides.Allocator.Adopt(a); err != nil {
			return err
		}
	}
	holds := blocks.DefaultConfig()
	holds.Node, holds.Labels, holds.PreAllocate, holds.Interval = n.name, n.labels, 2, 20*time.Millisecond
	holds.MemoPath = filepath.Join(w.dir, n.name+".json")
	m, err := blocks.New(holds, n.network, localblocks.New(sides.MultiPool), w.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	sides.MultiPool.Ask(ipam.MoreFunc(func(ctx context.Context, pool string, want endpointmanager.Addresses) error {
		return m.More(ctx, pool, want.List()...)
	}))
	m.Start()
	n.sides, n.manager = sides, m
	n.stop = func() {
		n.kept = sides.Allocator.List()
		_ = m.Stop(context.Background())
		n.manager, n.stop = nil, func() {}
	}
	return nil
}
