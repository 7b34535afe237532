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
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

var (
	operations = flag.Int("operations", 50_000, "how many allocations and releases TestRandom makes on each backend")
	seed       = flag.Uint64("seed", 0, "of TestRandom; 0 draws one")
)

// TestRandom has several machines on one store allocate and release at random, while answers are lost and calls arrive late, machines
// are cut off, rebooted and replaced under the same name, and agents are restarted. On the strict backend the store is restored and
// wiped, too. No address is in use on two machines, and in the end every address can be given out.
func TestRandom(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	t.Run("embedded", func(t *testing.T) { random(t, cluster.OnStore(storetest.New(t)), nil, s) })
	t.Run("etcd", func(t *testing.T) {
		random(t, cluster.OnStore(storetest.Open(t, etcdtest.Start(t, nil).Config())), nil, s)
	})
	t.Run("strict", func(t *testing.T) {
		strict := clustertest.NewStrict(s)
		t.Cleanup(strict.Close)
		random(t, strict.Backend(), strict, s)
	})
}

// maxReplaced bounds how many machines get the name of another one: those keep their blocks until the end.
const maxReplaced = 8

// randomTime bounds the operations on one backend.
const randomTime = 4 * time.Minute

// troubled is a machine to which things happen.
type troubled struct {
	mu      sync.RWMutex // held for writing while the machine has no agent, or is replaced
	machine *machine
	rng     *rand.Rand
}

func random(t *testing.T, b cluster.Backend, strict *clustertest.Strict, seed uint64) {
	w := newWorld(t, b)
	w.loss = 0.05
	w.pool("default", 28, "10.0.0.0/23") // 32 blocks of 16 addresses
	nodes := make([]*troubled, 6)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for i := range nodes {
		nodes[i] = &troubled{machine: w.machine(names[i], seed+uint64(i)), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
	}
	var busy, trouble sync.WaitGroup
	calm := make(chan struct{})
	var gone []*machine // replaced machines that go on without a name of their own
	var mu sync.Mutex
	for i, n := range nodes {
		busy.Go(func() { w.use(n, rand.New(rand.NewPCG(seed, uint64(i+100)))) })
		trouble.Go(func() {
			for w.troubleOne(n, calm, func(m *machine) { mu.Lock(); gone = append(gone, m); mu.Unlock() }) {
			}
		})
	}
	if strict != nil {
		trouble.Go(func() { w.troubleStore(strict, calm, rand.New(rand.NewPCG(seed, 1000))) })
	}
	busy.Wait()
	close(calm)
	trouble.Wait()
	w.settle(nodes, gone)
	w.mu.Lock()
	t.Logf("%d operations, %d machines were replaced", w.done, len(gone))
	w.mu.Unlock()
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// use allocates and releases, about as many as want at a time.
func (w *world) use(n *troubled, rng *rand.Rand) {
	want := 20
	end := time.Now().Add(randomTime)
	for i := 0; w.count() < *operations && !w.Failed(); i++ {
		if time.Now().After(end) {
			w.Errorf("%d operations in %s: nobody gets addresses any more", w.count(), randomTime)
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

// troubleOne has something happen to a machine, and is false when that is over.
func (w *world) troubleOne(n *troubled, calm <-chan struct{}, replaced func(*machine)) bool {
	select {
	case <-calm:
		return false
	case <-time.After(time.Duration(n.rng.IntN(300)) * time.Millisecond):
	}
	pause := func(most int) { time.Sleep(time.Duration(n.rng.IntN(most)) * time.Millisecond) } // how long the trouble lasts
	m := n.machine
	switch n.rng.IntN(8) {
	case 0, 1, 2: // the network is cut
		m.network.Cut()
		pause(1000)
		m.network.Heal()
	case 3, 4: // the agent is restarted, perhaps without the store
		if n.rng.IntN(2) == 0 {
			m.network.Cut()
		}
		n.mu.Lock()
		w.stop(m)
		w.start(m)
		n.mu.Unlock()
		pause(300)
		m.network.Heal()
	case 5, 6: // the machine is rebooted, perhaps without the store
		if n.rng.IntN(2) == 0 {
			m.network.Cut()
		}
		n.mu.Lock()
		w.reboot(m)
		n.mu.Unlock()
		pause(300)
		m.network.Heal()
	case 7: // another machine gets the name; the old one keeps its pods and may be cut off
		if n.rng.IntN(4) > 0 || w.replaced.Add(1) > maxReplaced {
			return true
		}
		n.mu.Lock()
		n.machine = w.machine(m.name, n.rng.Uint64())
		n.mu.Unlock()
		replaced(m)
	}
	return true
}

// troubleStore restores and wipes the store.
func (w *world) troubleStore(s *clustertest.Strict, calm <-chan struct{}, rng *rand.Rand) {
	for {
		backup := s.Backup()
		select {
		case <-calm:
			return
		case <-time.After(time.Duration(500+rng.IntN(4000)) * time.Millisecond):
		}
		if rng.IntN(4) == 0 {
			s.Wipe()
			w.restorePool()
		} else {
			s.Restore(backup)
		}
		if err := multipool.NewNodeAdmin(w.backend).BeginRecovery(context.Background()); err != nil {
			continue // the record of the cluster is gone; who notices begins it
		}
	}
}

// restorePool is what an administrator does after the store was wiped.
func (w *world) restorePool() {
	p := cluster.Pool{Name: "default", UID: "restored", State: cluster.PoolAccepted, Prefixes: prefixes("10.0.0.0/23"), IPv4BlockBits: 28}.WithDefaults()
	if _, err := w.backend.Pools.Create(context.Background(), p); err != nil {
		w.Log(err)
	}
}

// awaitRecovery shows who has not confirmed when the recovery does not end.
func (w *world) awaitRecovery(nodes []*troubled, gone []*machine) {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); !w.recovered(); time.Sleep(10 * time.Millisecond) {
		if time.Now().Before(end) {
			continue
		}
		r, _, err := w.backend.Info.Get(w.Context())
		waiting, _ := multipool.Unconfirmed(w.Context(), w.backend, r)
		w.Errorf("the recovery does not end: %+v, error %v; waiting for %v", r, err, waiting)
		for _, n := range nodes {
			w.Logf("%s: %+v", n.machine.dir, n.machine.controller.Status())
		}
		for _, m := range gone {
			w.Logf("replaced: %s: %+v", m.dir, m.controller.Status())
		}
		for _, b := range w.blocks() {
			w.Logf("block %+v", b)
		}
		w.FailNow()
	}
}

// settle ends all trouble and deletes the machines that were replaced. Then the others can give out every address.
func (w *world) settle(nodes []*troubled, gone []*machine) {
	admin := w.nodeAdmin()
	for _, n := range nodes {
		n.machine.network.Heal()
		n.machine.network.Calm()
	}
	for _, m := range gone {
		m.network.Heal()
		m.network.Calm()
	}
	w.awaitRecovery(nodes, gone)
	for _, m := range gone {
		w.wait("the machine is connected", func() bool { return m.controller.Status().Connected })
		w.stop(m)
		w.endPods(m)
		if err := admin.Delete(w.Context(), m.controller.Status().Node, true); err != nil {
			w.Error(err)
		}
	}
	for _, n := range nodes {
		w.endPods(n.machine)
	}
	const all = 512
	given := 0
	for end := time.Now().Add(time.Minute); given < all && time.Now().Before(end) && !w.Failed(); {
		for _, n := range nodes {
			if _, err := w.allocate(n.machine, 200*time.Millisecond); err == nil {
				given++
			}
		}
	}
	if given != all {
		w.Errorf("%d of %d addresses can be given out", given, all)
		for _, b := range w.blocks() {
			w.Logf("block %+v", b)
		}
	}
}
