package multipool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// backing is a store that can be set back.
type backing struct {
	cluster.Backend
	save    func() // makes a backup
	restore func() // has it know what it knew at the backup
	wipe    func() // has it know nothing
	compact func() // has it forget the past; nil when it has none
	every   int    // about how many operations there are between two of these

	restores, wipes, compactions int
}

func (b *backing) summary() string {
	return fmt.Sprintf("the store was restored %d, wiped %d, compacted %d times", b.restores, b.wipes, b.compactions)
}

func strictBacking(t *testing.T, seed uint64) *backing {
	s := clustertest.NewStrict(seed)
	t.Cleanup(s.Close)
	backup := s.Backup()
	return &backing{
		Backend: s.Backend(), every: 4000,
		save: func() { backup = s.Backup() }, restore: func() { s.Restore(backup) }, wipe: s.Wipe,
	}
}

// embeddedBacking is set back by another file in place of the one that it has, while the store is stopped.
func embeddedBacking(t *testing.T) *backing {
	cfg := store.DefaultConfig()
	cfg.Dir = t.TempDir()
	s := storetest.Open(t, cfg)
	file, saved := filepath.Join(cfg.Dir, "store.db"), filepath.Join(t.TempDir(), "saved.db")
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
		Backend: cluster.OnStore(s), every: 4000,
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

func etcdBacking(t *testing.T) *backing {
	server := etcdtest.Start(t, nil)
	s := storetest.Open(t, server.Config())
	return &backing{
		Backend: cluster.OnStore(s), every: 4000,
		save: func() { server.Save(t) }, restore: func() { server.SetBack(t) }, wipe: func() { server.Wipe(t) },
		compact: func() { server.Compact(t) },
	}
}

// troubleStore restores, wipes and compacts the store.
func (w *randomWorld) troubleStore(rng *rand.Rand) {
	w.store.save()
	for next := 0; !w.Failed(); {
		next += w.store.every/2 + rng.IntN(w.store.every)
		if !w.reach(next, w.excludeRemoved) {
			return
		}
		switch n := rng.IntN(8); {
		case n < 3 && w.store.compact != nil:
			w.note("the store is compacted")
			w.store.compactions++
			w.store.compact()
		case n < 4:
			w.note("a backup of the store is made")
			w.store.save()
		case n < 7:
			w.note("the store is restored")
			w.store.restores++
			w.setBack(w.store.restore)
		default:
			w.note("the store is wiped")
			w.store.wipes++
			w.setBack(func() { w.store.wipe(); w.restorePool() })
		}
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

// setBack does what the documentation says of a restore: no agent reaches the store before it is marked.
func (w *randomWorld) setBack(do func()) {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.gate.Cut()
	defer w.gate.Heal()
	do()
	w.beginRecovery()
}

// excludeRemoved is what an administrator does when a recovery waits for machines that are gone, which the backup had,
// or for who uses blocks of these by now.
func (w *randomWorld) excludeRemoved() {
	nodes := w.nodeAdmin()
	r, _, err := w.backend.Info.Get(w.Context())
	if err != nil || r.Recovery == nil {
		return
	}
	waiting, _ := cluster.UnconfirmedNodes(w.Context(), w.backend, r)
	for _, n := range waiting {
		if w.isRemoved(n.Node) || w.isLost(n.Node) {
			w.note("node %s is excluded: %v", n.Node, nodes.Exclude(w.Context(), n.Node))
		}
		for _, other := range n.OtherOwners {
			if id, err := cluster.ParseNodeID(other); err == nil && w.isRemoved(id) {
				w.note("node %s, whose blocks %s uses, is deleted: %v", other, n.Node, nodes.Delete(w.Context(), id, true))
			}
		}
	}
}

// deleteRemoved deletes what a backup brought back of machines that are gone, and reports whether that is all. One may
// have reported a conflict with another: that is deleted after it.
func (w *randomWorld) deleteRemoved() bool {
	list, err := w.nodeAdmin().List(w.Context())
	for _, n := range list {
		if w.isRemoved(n.Node.ID) && n.Node.State != "" {
			deleted := w.nodeAdmin().Delete(w.Context(), n.Node.ID, true)
			w.note("node %s, which a backup brought back, is deleted: %v", n.Node.ID, deleted)
			err = errors.Join(err, deleted)
		}
	}
	return err == nil
}

func (w *randomWorld) isRemoved(id cluster.NodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removed[id]
}

// restorePool is what an administrator does after the store was wiped.
func (w *world) restorePool() {
	p := cluster.Pool{Name: "default", UID: "restored", State: cluster.PoolAccepted, Prefixes: prefixes("10.0.0.0/23"), IPv4BlockBits: 28}.WithDefaults()
	w.wait("the pool is there", func() bool {
		_, err := w.backend.Pools.Create(w.Context(), p)
		return err == nil
	})
}
