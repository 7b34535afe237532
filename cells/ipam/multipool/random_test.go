package multipool_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/testutil"
)

var (
	operations = flag.Int("operations", 0, "how many allocations and releases TestRandom makes on each backend; 0: 50,000 with FULL=1, else 5,000")
	seed       = flag.Uint64("seed", 0, "of TestRandom; 0 draws one")
)

// TestRandom has several machines on one store allocate and release at random. Meanwhile answers are lost and calls
// arrive late; machines are cut off, rebooted, and replaced under the same name; agents are restarted and paused,
// clocks jump, disks are copied and lost; the store is restored from a backup, wiped and compacted. No address is in
// use on two machines, and in the end every address can be given out.
//
// The seed decides what happens to whom, not the order of what happens at the same time: run a failure again with its
// -seed and -count.
func TestRandom(t *testing.T) {
	s := drawSeed(t)
	t.Run("embedded", func(t *testing.T) { random(t, embeddedBacking(t), s) })
	t.Run("kubernetes", func(t *testing.T) { random(t, kubernetesBacking(t), s) })
	t.Run("strict", func(t *testing.T) { random(t, strictBacking(t, s), s) })
}

func drawSeed(t *testing.T) uint64 {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return s
}

// goal is the number of allocations and releases on each backend.
func goal() int {
	switch {
	case *operations > 0:
		return *operations
	case testutil.Full():
		return 50_000
	}
	return 5_000
}

// randomWorld is a world with trouble.
type randomWorld struct {
	*world
	store *backing
	nodes []*troubled
	calm  chan struct{} // closed when the trouble is to end
	// changing is held for writing while the store is set back, and for reading while a machine becomes another node.
	changing sync.RWMutex

	goneMu sync.Mutex // guards the fields below
	gone   []*machine // machines that were replaced: they continue, and the test does not use them
	copies int
	lost   []cluster.NodeID // nodes of machines that have lost their folders
	losses int              // how often one has, or should have

	recreated map[cluster.NodeID]string // the folders of nodes whose Node was created again
}

func random(t *testing.T, store *backing, seed uint64) {
	w := &randomWorld{world: newWorld(t, store.Backend), store: store, calm: make(chan struct{}), recreated: map[cluster.NodeID]string{}}
	w.gate = clustertest.NewNetwork(store.Backend, seed, 0, 0)
	t.Cleanup(w.gate.Close)
	w.loss = 0.05
	w.pool("default", 28, "10.0.0.0/23") // 32 blocks of 16 addresses
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.nodes = append(w.nodes, &troubled{machine: w.machine(name, seed+uint64(i)), rng: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	t.Cleanup(w.showNotes)
	var busy, trouble sync.WaitGroup
	for i, n := range w.nodes {
		busy.Go(func() { w.use(n, rand.New(rand.NewPCG(seed, uint64(i+100)))) })
		trouble.Go(func() { w.trouble(n) })
	}
	trouble.Go(w.administrate)
	trouble.Go(func() { w.troubleStore(rand.New(rand.NewPCG(seed, 1000))) })
	busy.Wait()
	close(w.calm)
	trouble.Wait()
	w.settle()
	t.Logf("%d operations, %d machines were replaced, %d disks copied, %d lost; %s", w.count(), len(w.gone), w.copies, min(w.losses, maxLost), store.summary())
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// use allocates and releases, about as many as want at a time.
func (w *randomWorld) use(n *troubled, rng *rand.Rand) {
	want := 20
	done, since := 0, time.Now()
	for i := 0; (w.count() < goal() || w.store.troubles.Load() < w.store.least) && !w.Failed(); i++ {
		if now := w.count(); now > done {
			done, since = now, time.Now()
		} else if time.Since(since) > testutil.Patience {
			w.Errorf("%d operations, and then none in %s: nobody gets addresses any more", done, testutil.Patience)
		}
		if i%200 == 0 {
			want = 1 + rng.IntN(60) // so that blocks come and go
		}
		n.mu.RLock()
		m := n.machine
		if all := m.addresses.all(); len(all) > 0 && rng.IntN(2*want) < len(all) {
			w.release(m, all[rng.IntN(len(all))])
		} else {
			_, _ = w.allocate(m, 20*time.Millisecond)
		}
		n.mu.RUnlock()
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond) // so that there is time for trouble
	}
}

// settle ends all trouble and deletes the machines that were replaced. Then the others can give out every address.
func (w *randomWorld) settle() {
	var machines []*machine
	for _, n := range w.nodes {
		machines = append(machines, n.machine)
	}
	for _, m := range append(machines, w.gone...) {
		m.network.Heal()
		m.network.Calm()
	}
	w.Cleanup(func() {
		if w.Failed() {
			w.show()
		}
	})
	if w.Failed() {
		return
	}
	w.listed()
	w.wait("the recovery is over", func() bool { w.endRecoveryIfWritten(); w.deleteLost(); w.resetContests(); return !w.recovering() })
	for _, m := range append(machines, w.gone...) {
		if multipool.HasUnownedBlocks(m.controller) { // that lasts as long as the pods
			w.endPods(m)
		}
	}
	w.wait("nodes of lost folders, and those that a backup brought back, are deleted", func() bool {
		w.deleteLost()
		return w.deleteRemoved() && len(w.lost) == 0
	})
	for _, m := range w.gone {
		w.wait("the machine is connected", func() bool { return m.controller.Status().Connected })
		w.removeMachine(m)
	}
	for _, m := range machines {
		w.endPods(m)
	}
	const all = 512
	given := 0
	w.wait("every address is given out", func() bool {
		for _, m := range machines {
			m.ahead.Add(int64(time.Minute)) // a node of a full pool looks every ten minutes for blocks in its name that it does not know
			if _, err := w.allocate(m, 200*time.Millisecond); err == nil {
				given++
			}
		}
		return given == all
	})
}

// show tells why it does not end.
func (w *randomWorld) show() {
	ctx := context.Background() // the test's context is over
	r, _, err := w.backend.Info.Get(ctx)
	unwritten, _ := cluster.UnwrittenNodes(ctx, w.backend, r)
	w.Logf("the record of the cluster: %+v, error %v; not written: %v", r, err, unwritten)
	for _, n := range w.nodes {
		w.Logf("%s: %+v", n.machine.dir, n.machine.controller.Status())
	}
	for _, m := range w.gone {
		w.Logf("replaced: %s: %+v", m.dir, m.controller.Status())
	}
	list, err := w.nodeAdmin().List(ctx)
	w.Logf("nodes and blocks: %+v, error %v", list, err)
}
