package multipool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// backing is a store that can be set back.
type backing struct {
	cluster.Backend
	save    func() // makes a backup
	restore func() // has it know what it knew at the backup
	bumped  func() // like restore, but revisions go on above all earlier revisions; nil when it cannot
	wipe    func() // has it know nothing
	compact func() // has it forget the past; nil when it has none
	every   int    // about how many operations there are between two of these

	least    int64        // how many there are before it ends
	troubles atomic.Int64 // how many there were
	relists  bool         // watches list again after a restore without being cut off: they are at an API server

	saved                               cluster.Position // of the backup
	ways                                [3]int           // of the restores: announced, marked, not announced
	restores, bumps, wipes, compactions int
}

func (b *backing) summary() string {
	return fmt.Sprintf("the store was restored %d times, %d times with bumped revisions, wiped %d, compacted %d times; %d of these were announced, %d marked, and %d to be noticed",
		b.restores, b.bumps, b.wipes, b.compactions, b.ways[0], b.ways[1], b.ways[2])
}

func strictBacking(t *testing.T, seed uint64) *backing {
	s := clustertest.NewStrict(seed)
	t.Cleanup(s.Close)
	backup := s.Backup()
	return &backing{
		Backend: s.Backend(), every: 4000,
		save: func() { backup = s.Backup() }, restore: func() { s.Restore(backup) }, bumped: func() { s.RestoreAhead(backup) }, wipe: s.Wipe,
	}
}

// embeddedBacking is restored by replacing its file while the store is stopped.
func embeddedBacking(t *testing.T) *backing {
	dir := t.TempDir()
	s := embeddedtest.Open(t, dir)
	file, saved := filepath.Join(dir, "store.db"), filepath.Join(t.TempDir(), "saved.db")
	whileStopped := func(do func() error) func() {
		return func() {
			err := s.Stop(context.Background())
			if err == nil {
				err = do()
			}
			if err == nil {
				err = s.Start(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	return &backing{
		Backend: s.Backend(), every: 4000,
		save:    whileStopped(func() error { return copyFile(file, saved) }),
		restore: whileStopped(func() error { return copyFile(saved, file) }),
		wipe:    whileStopped(func() error { return os.Remove(file) }),
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

func kubernetesBacking(t *testing.T) *backing {
	server, b := recordstest.Start(t)
	empty := server.Backup()
	backup := empty
	bump := uint64(0)
	return &backing{
		Backend: b, relists: true, every: 600, least: 6,
		save: func() { backup = server.Backup() }, restore: func() { server.Restore(backup, 0) },
		bumped: func() { bump += 1e9; server.Restore(backup, bump) }, // the same backup may be restored twice
		wipe:   func() { server.Restore(empty, 0) }, compact: server.Compact,
	}
}

// troubleStore restores, wipes and compacts the store.
func (w *randomWorld) troubleStore(rng *rand.Rand) {
	w.save()
	for kinds := []int(nil); !w.Failed(); {
		next := w.count() + w.store.every/2 + rng.IntN(w.store.every)
		if !w.reach(next, w.endRecoveryIfWritten) {
			return
		}
		if len(kinds) == 0 {
			kinds = rng.Perm(6)
		}
		kind := kinds[0]
		kinds = kinds[1:]
		switch {
		case kind == 0, kind == 1 && w.store.bumped == nil:
			w.note("the store is restored")
			w.store.restores++
			w.setBack(rng, w.store.restore, 3, false)
		case kind == 1:
			w.note("the store is restored, and bumps revisions")
			w.store.bumps++
			w.setBack(rng, w.store.bumped, 2, false)
		case kind == 2:
			w.note("the store is wiped")
			w.store.wipes++
			w.setBack(rng, w.store.wipe, 3, true)
		case kind >= 4 && w.store.compact != nil:
			w.note("the store is compacted")
			w.store.compactions++
			w.store.compact()
		default:
			w.note("a backup of the store is made")
			w.save()
		}
		w.store.troubles.Add(1)
	}
}

// reach waits for the operation, and is false when there will be no more. Trouble comes by operations, so that a busy
// machine has as much of it, and one on which nothing goes has none. Meanwhile it calls do now and then.
func (w *randomWorld) reach(operation int, do func()) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for w.count() < operation {
		select {
		case <-w.calm:
			return false
		case <-tick.C:
			do()
		}
	}
	return true
}

// save makes a backup.
func (w *randomWorld) save() {
	w.wait("the store has a position", func() (ok bool) {
		_, position, err := w.backend.Info.Get(w.Context())
		w.store.saved = position
		return err == nil
	})
	w.gate.Cut()
	defer w.gate.Heal()
	w.store.save()
}

// setBack does what the documentation says of a restore: every node knows of the recovery before, or no agent reaches
// the store before it is marked; or it says nothing, when every node can notice. It chooses one of the first ways of
// these three. Clients of an API server are not cut off, unless cut is true: their watches list again by themselves.
func (w *randomWorld) setBack(rng *rand.Rand, do func(), ways int, cut bool) {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.listed()
	way := min(rng.IntN(4), ways-1)
	if way == 2 && !w.canNotice() {
		way = rng.IntN(2)
	}
	w.note("the restore is %s", []string{"announced", "marked before an agent reaches the store", "not announced"}[way])
	w.store.ways[way]++
	if way == 0 {
		w.wait("a recovery is begun", func() bool {
			n := w.nodes[rng.IntN(len(w.nodes))]
			n.mu.RLock()
			defer n.mu.RUnlock()
			begun, err := n.machine.controller.BeginRecovery(w.Context())
			return begun && err == nil
		})
		w.wait("every machine knows of the recovery", func() bool {
			r, _, err := w.backend.Info.Get(w.Context())
			return err == nil && r.Recovery != nil && !slices.ContainsFunc(w.agents(), func(m agent) bool {
				known := m.controller.Status().Recovery
				return known == nil || known.ID != r.Recovery.ID
			})
		})
	}
	w.gate.SetBack()
	if cut || way == 1 || !w.store.relists {
		w.gate.Cut()
	}
	do()
	if way == 1 {
		w.beginRecovery()
	}
	w.gate.Heal()
	w.wait("the recovery has begun", w.recovering)
}

// listed waits until every watch that was open before the last restore has listed since. A watch of the API server goes
// on without a list if the record that had changed last is as it was, as the pool often is.
func (w *randomWorld) listed() {
	testutil.Eventually(w.T, func() error {
		late := w.gate.Late()
		if w.store.relists {
			late = slices.DeleteFunc(late, func(kind string) bool { return kind == "cluster.Pool" })
		}
		if len(late) > 0 {
			return fmt.Errorf("watches that have not listed since the store was set back: %v", late)
		}
		return nil
	})
}

// canNotice reports whether each machine's checkpoint has a position far beyond the backup: none can be
// overtaken by what others write until the first one notices.
func (w *randomWorld) canNotice() bool {
	const far = 50
	for _, m := range w.agents() {
		_ = m.controller.Reconcile(w.Context()) // reads the position
		var ck struct{ Position cluster.Position }
		text, err := os.ReadFile(filepath.Join(m.dir, "multipool.json"))
		if err == nil {
			err = json.Unmarshal(text, &ck)
		}
		if err != nil || ck.Position.Revision < w.store.saved.Revision+far {
			return false
		}
	}
	return true
}

// agent is the agent of a machine that runs.
type agent struct {
	dir        string
	controller *multipool.Controller
}

// agents are the agents of all machines that run.
func (w *randomWorld) agents() (list []agent) {
	for _, n := range w.nodes {
		n.mu.RLock()
		list = append(list, agent{n.machine.dir, n.machine.controller})
		n.mu.RUnlock()
	}
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	for _, m := range w.gone {
		list = append(list, agent{m.dir, m.controller})
	}
	return list
}

// endRecoveryIfWritten is what an administrator does in a recovery: it deletes nodes that no machine is any more, which
// the backup had, and ends the recovery when every machine has written its blocks.
func (w *randomWorld) endRecoveryIfWritten() {
	nodes := w.nodeAdmin()
	r, _, err := w.backend.Info.Get(w.Context())
	if err != nil || r.Recovery == nil {
		return
	}
	unwritten, err := cluster.UnwrittenNodes(w.Context(), w.backend, r)
	for _, n := range unwritten {
		if w.isGone(n.Node) {
			w.note("node %s, which a backup brought back, is deleted: %v", n.Node, nodes.Delete(w.Context(), n.Node, true))
		}
		for _, other := range n.OtherOwners {
			if id, err := cluster.ParseNodeID(other); err == nil && w.isGone(id) {
				w.note("node %s, whose blocks %s uses, is deleted: %v", other, n.Node, nodes.Delete(w.Context(), id, true))
			}
		}
	}
	if err != nil || len(unwritten) > 0 {
		return
	}
	for _, m := range w.agents() {
		if s, err := w.backend.Sessions.Get(w.Context(), m.controller.Status().Node); err != nil || !s.HasWritten(r) {
			return
		}
	}
	w.restorePool()
	w.note("the recovery is ended: %v", admin.EndRecovery(w.Context(), w.backend, false))
}

// restorePool creates the pool if the store has lost it, after nodes have written their blocks: it is the pool of
// these.
func (w *randomWorld) restorePool() {
	if _, err := w.backend.Pools.Get(w.Context(), "default"); !errors.Is(err, cluster.ErrNotFound) {
		return
	}
	p := cluster.Pool{Name: "default", Prefixes: prefixes("10.0.0.0/23"), IPv4BlockBits: 28, Quarantine: time.Millisecond}
	p, err := admin.NewPools(w.backend).Put(w.Context(), p)
	w.note("the pool is created again: %+v, error %v", p, err)
}

// deleteRemoved deletes what a backup brought back of machines that are gone, and reports whether that is all. One may
// have reported a conflict with another: that is deleted after it.
func (w *randomWorld) deleteRemoved() bool {
	list, err := w.nodeAdmin().List(w.Context())
	for _, n := range list {
		if w.isGone(n.Node.ID) && n.Node.State != "" {
			deleted := w.nodeAdmin().Delete(w.Context(), n.Node.ID, true)
			w.note("node %s, which a backup brought back, is deleted: %v", n.Node.ID, deleted)
			err = errors.Join(err, deleted)
		}
	}
	return err == nil
}

// isGone reports whether no machine is this node: it was removed, or has another key since its Node was created again
// while the store had lost its record.
func (w *randomWorld) isGone(id cluster.NodeID) bool {
	w.mu.Lock()
	removed := w.removed[id]
	w.mu.Unlock()
	w.goneMu.Lock()
	dir := w.recreated[id]
	w.goneMu.Unlock()
	return removed || slices.ContainsFunc(w.agents(), func(m agent) bool { return m.dir == dir && m.controller.Status().Node != id })
}
