package multipool_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// world is some nodes on one store, and the simple truth: which machine has which address.
type world struct {
	*testing.T
	backend cluster.Backend
	cfg     multipool.Config
	loss    float64

	log *slog.Logger
	// gate is what all machines go through to the store, so that it can be closed to them; nil for none.
	gate *clustertest.Network

	mu      sync.Mutex // guards the fields below
	owners  map[netip.Addr]*machine
	removed map[cluster.NodeID]bool // nodes of machines that are gone
	done    int                     // allocations and releases
	notes   []string
}

// machine is one machine with an agent.
type machine struct {
	name       string
	dir        string
	network    *clustertest.Network
	addresses  *plain
	controller *multipool.Controller
	boots      int
	machineID  string
	copied     bool
	kubernetes *kubernetesNode
	ahead      atomic.Int64 // of the boot clock, in nanoseconds
}

// clock is the boot clock of the machine.
func (m *machine) clock() time.Duration { return boottime.Now() + time.Duration(m.ahead.Load()) }

func newWorld(t *testing.T, b cluster.Backend) *world {
	cfg := multipool.DefaultConfig()
	cfg.PreAllocate, cfg.IdleTime, cfg.SearchTime, cfg.Interval = 4, 100*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
	cfg.ContestTime = 10 * time.Millisecond
	w := &world{T: t, backend: b, cfg: cfg, owners: map[netip.Addr]*machine{}, removed: map[cluster.NodeID]bool{}, log: slog.New(slog.DiscardHandler)}
	if os.Getenv("LOG") != "" {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return w
}

// each runs the test on each backend.
func each(t *testing.T, test func(t *testing.T, b cluster.Backend)) {
	t.Run("embedded", func(t *testing.T) { test(t, embeddedtest.New(t)) })
	t.Run("kubernetes", func(t *testing.T) {
		_, b := recordstest.Start(t)
		test(t, b)
	})
	t.Run("strict", func(t *testing.T) { test(t, strict(t)) })
}

func (w *world) pool(name string, blockBits int, cidrs ...string) cluster.Pool {
	w.Helper()
	p := cluster.Pool{Name: name, IPv4BlockBits: blockBits, Quarantine: time.Millisecond}
	for _, text := range cidrs {
		p.Prefixes = append(p.Prefixes, netip.MustParsePrefix(text))
	}
	p, err := admin.NewPools(w.backend).Put(w.Context(), p)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// machine makes a new machine and starts its agent.
func (w *world) machine(name string, seed uint64) *machine {
	dir := w.TempDir()
	return w.machineOn(&machine{name: name, dir: dir, machineID: "id of " + filepath.Base(dir)}, seed)
}

// machineOn is machine with a disk that may have something on it.
func (w *world) machineOn(m *machine, seed uint64) *machine {
	w.Helper()
	way := w.backend
	if w.gate != nil {
		way = w.gate.Backend()
	}
	if m.kubernetes == nil {
		m.kubernetes = &kubernetesNode{}
		m.kubernetes.create("node of " + filepath.Base(m.dir))
	}
	m.network, m.addresses = clustertest.NewNetwork(way, seed, w.loss, time.Millisecond), newPlain()
	w.start(m)
	w.Cleanup(func() {
		m.network.Resume()
		w.stop(m)
		m.network.Close()
	})
	return m
}

// start begins another life of the machine's agent: its endpoints outlived the last one.
func (w *world) start(m *machine) {
	w.Helper()
	addresses := newPlain()
	for _, addr := range m.addresses.all() {
		addresses.adopt(addr)
	}
	m.addresses = addresses
	cfg := w.cfg
	cfg.Node, cfg.Dir = m.name, m.dir
	if m.copied { // the first machine notices, however busy the test's is
		cfg.ContestTime = testutil.Patience
	}
	c, err := multipool.New(cfg, m.network.Backend(), m.kubernetes, addresses.Allocator, m.clock, w.log.With("node", m.name))
	if err != nil {
		w.Fatal(err)
	}
	if err := multipool.StartAs(c, fmt.Sprintf("%s-boot-%d", filepath.Base(m.dir), m.boots), m.machineID); err != nil {
		w.Error(err)
	}
	m.controller = c
}

func (w *world) stop(m *machine) { _ = m.controller.Stop(context.Background()) }

// reboot ends all that runs on the machine.
func (w *world) reboot(m *machine) {
	w.stop(m)
	w.endPods(m)
	m.boots++
	w.start(m)
}

func (w *world) endPods(m *machine) {
	for _, addr := range m.addresses.all() {
		w.release(m, addr)
	}
}

func (w *world) release(m *machine, addr netip.Addr) {
	m.addresses.release(addr, func(addr netip.Addr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done++
		if w.owners[addr] == m {
			delete(w.owners, addr)
		}
	})
}

// allocate gives a pod an address, and claims a block for it when there is none.
func (w *world) allocate(m *machine, timeout time.Duration) (netip.Addr, error) {
	given := func(addr netip.Addr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done++
		if owner := w.owners[addr]; owner != nil && owner != m {
			w.Errorf("%s is given to a pod of %s and is in use on %s", addr, m.dir, owner.dir)
			w.notes = append(w.notes, noteNow("%s is given out twice: to %s, and it is in use on %s", addr, m.dir, owner.dir))
		}
		w.owners[addr] = m
	}
	if addr, ok := m.addresses.allocate(cluster.IPv4, given); ok {
		return addr, nil
	}
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	err := m.controller.Refill(ctx, multipool.DefaultPool)
	if addr, ok := m.addresses.allocate(cluster.IPv4, given); ok {
		return addr, nil
	}
	if err == nil {
		err = fmt.Errorf("no address and no error")
	}
	return netip.Addr{}, err
}

// mustAllocate is allocate, again and again for a while.
func (w *world) mustAllocate(m *machine) netip.Addr {
	w.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		var addr netip.Addr
		if addr, err = w.allocate(m, time.Second); err == nil {
			return addr
		}
	}
	w.Fatalf("%s gets no address: %v", m.name, err)
	return netip.Addr{}
}

// refused waits until a pod of the machine gets no address, for that reason.
func (w *world) refused(m *machine, reason error) {
	w.Helper()
	w.wait("refused: "+reason.Error(), func() bool {
		addr, err := w.allocate(m, time.Second)
		if err == nil {
			w.Fatalf("%s is given out", addr)
		}
		return errors.Is(err, reason)
	})
}

// wait waits until the condition holds.
func (w *world) wait(what string, condition func() bool) {
	w.Helper()
	testutil.Eventually(w.T, func() error {
		if !condition() {
			return errors.New("wait until " + what)
		}
		return nil
	})
}

// blocks are the blocks in the store.
func (w *world) blocks() (list []cluster.Block) {
	w.Helper()
	for b, err := range w.backend.Blocks.All(w.Context(), cluster.BlockFilter{}) {
		if err != nil {
			w.Fatal(err)
		}
		if !b.Deleting {
			list = append(list, b)
		}
	}
	return list
}

// copyOf copies the machine's disk to a new machine.
func (w *world) copyOf(m *machine, seed uint64) *machine { return w.copyOn(m, m.machineID, seed) }

// copyOn copies it to a machine with that machine-id.
func (w *world) copyOn(m *machine, machineID string, seed uint64) *machine {
	dir := w.TempDir()
	for _, name := range []string{"node-key", "multipool.json"} {
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	return w.machineOn(&machine{name: m.name, dir: dir, machineID: machineID, copied: machineID == m.machineID}, seed)
}

// contestedCopy is copyOf, when both machines have noticed.
func (w *world) contestedCopy(m *machine) *machine {
	w.Helper()
	copied := w.copyOf(m, 2)
	w.wait("both know", func() bool {
		return m.controller.Status().Contested != nil && copied.controller.Status().Contested != nil
	})
	return copied
}

// forgetKey gives the machine another key at its next start.
func (w *world) forgetKey(m *machine) {
	if err := os.Remove(filepath.Join(m.dir, "node-key")); err != nil {
		w.Fatal(err)
	}
}

// breakable is a kind of calls of the machines that are made after it, which can be made to fail.
type breakable struct {
	left   atomic.Int64 // how many are to fail
	failed atomic.Int64
}

func (b *breakable) failNext(n int64) { b.left.Store(n) }
func (b *breakable) fail()            { b.failNext(math.MaxInt64) }
func (b *breakable) mend()            { b.failNext(0) }

// breakable has calls such as "Blocks.Create" fail when it is told to.
func (w *world) breakable(what string) *breakable {
	b := &breakable{}
	w.backend = clustertest.Intercept(w.backend, func(ctx context.Context, called string, call func(context.Context) error) error {
		if called == what && b.left.Load() > 0 {
			b.left.Add(-1)
			b.failed.Add(1)
			return cluster.ErrUnavailable
		}
		return call(ctx)
	})
	return b
}

// lateWatch is pools whose watches tell nothing while they are held.
type lateWatch struct {
	cluster.Pools
	mu   sync.Mutex // guards held
	held bool
	late chan cluster.Pool // a watch tells these, as if they came late
}

func newLateWatch(pools cluster.Pools) *lateWatch {
	return &lateWatch{Pools: pools, late: make(chan cluster.Pool)}
}

func (l *lateWatch) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

func (l *lateWatch) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *lateWatch) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	changes, err := l.Pools.Watch(ctx)
	if err != nil || l.isHeld() { // who begins to watch later is told all
		return changes, err
	}
	out := make(chan cluster.Change[cluster.Pool])
	go func() {
		defer close(out)
		for {
			var change cluster.Change[cluster.Pool]
			open := true
			select {
			case change, open = <-changes:
			case p := <-l.late:
				change = cluster.Change[cluster.Pool]{Kind: cluster.Put, Name: p.Name, Item: p}
			}
			if !open {
				return
			}
			if l.isHeld() {
				continue
			}
			select {
			case out <- change:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

// nodeAdmin waits for no quarantine.
func (w *world) nodeAdmin() *admin.Nodes {
	a := admin.NewNodes(w.backend)
	a.RecordDelay = time.Millisecond
	return a
}

// beginRecovery marks in the store that it was rolled back. No agent has read it since.
func (w *world) beginRecovery() {
	w.Helper()
	w.wait("a recovery is begun", func() bool {
		r, _, err := w.backend.Info.Get(w.Context())
		if errors.Is(err, cluster.ErrNotFound) {
			r, err = cluster.ClusterInfo{ID: rand.Text()}, nil
		}
		if r.Recovery != nil {
			r.EndRecovery()
		}
		r.Recovery = &cluster.Recovery{ID: rand.Text(), Began: time.Now(), Reason: "the test has set it back"}
		if err == nil {
			_, err = w.backend.Info.Put(w.Context(), r)
		}
		return err == nil
	})
}

// recovering reports whether a recovery is under way.
func (w *world) recovering() bool {
	r, _, err := w.backend.Info.Get(w.Context())
	return err == nil && r.Recovery != nil
}

// endRecovery waits until a recovery is under way and every node has written its blocks, and ends it.
func (w *world) endRecovery() {
	w.Helper()
	w.wait("a recovery is under way", w.recovering)
	w.wait("the recovery is ended", func() bool { return admin.EndRecovery(w.Context(), w.backend, false) == nil })
}

// unwritten lists the nodes that have not written their blocks since the recovery began.
func (w *world) unwritten() []cluster.UnwrittenNode {
	w.Helper()
	r, _, err := w.backend.Info.Get(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	list, err := cluster.UnwrittenNodes(w.Context(), w.backend, r)
	if err != nil {
		w.Fatal(err)
	}
	return list
}

// neverRecovered expects that no recovery has begun.
func (w *world) neverRecovered() {
	w.Helper()
	if r, _, err := w.backend.Info.Get(w.Context()); err != nil || r.LastRecovery() != "" {
		w.Errorf("the record of the cluster is %+v, error %v: want no recovery", r, err)
	}
}

// oneBlock is a world with a pool of one block. Machine one has an address of it, and machine two wants the block.
func oneBlock(t *testing.T, b cluster.Backend) (w *world, one, two *machine) {
	w = newWorld(t, b)
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28")
	one, two = w.machine("one", 1), w.machine("two", 2)
	w.mustAllocate(one)
	w.wait("two is connected", func() bool { return two.controller.Status().Connected })
	return w, one, two
}
