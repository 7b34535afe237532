package multipool_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// troubled is a machine to which things happen.
type troubled struct {
	mu      sync.RWMutex // held for writing while the machine has no agent, or is replaced
	machine *machine
	rng     *rand.Rand
	copying atomic.Bool // a copy of its disk may run
}

// Bounds of machines that get the name of another one, which keep their pods until the end: all together at most 20 of
// the 32 blocks; and of copies of disks, which take long; and of lost folders, whose blocks wait for the ends of the
// pods.
const (
	maxReplaced = 4
	maxCopied   = 12
	maxLost     = 12
)

// The pauses below are how long a trouble lasts: nothing is waited for.

// trouble has something happen to a machine again and again, until it is calm.
func (w *randomWorld) trouble(n *troubled) {
	kinds := []func(*troubled){
		w.cut, w.cut, w.cut, w.restart, w.restart, w.rebootOne, w.rebootOne, w.pauseCalls, w.pauseAll, w.jump, w.replace, w.copyDisk, w.lose, w.recreateNode,
	}
	for !w.Failed() && w.reach(w.count()+n.rng.IntN(1500), func() {}) {
		kinds[n.rng.IntN(len(kinds))](n)
	}
}

func (n *troubled) pause(most int) { time.Sleep(time.Duration(n.rng.IntN(most)) * time.Millisecond) }

// cut takes the network away.
func (w *randomWorld) cut(n *troubled) {
	w.note("%s is cut off", n.machine.name)
	n.machine.network.Cut()
	n.pause(600)
	n.machine.network.Heal()
}

// restart restarts the agent, perhaps without the store.
func (w *randomWorld) restart(n *troubled) {
	w.withoutAgent(n, "restarted", func(m *machine) { w.stop(m); w.start(m) })
}

// rebootOne reboots the machine, perhaps without the store.
func (w *randomWorld) rebootOne(n *troubled) { w.withoutAgent(n, "rebooted", w.reboot) }

func (w *randomWorld) withoutAgent(n *troubled, what string, do func(*machine)) {
	cut := n.rng.IntN(2) == 0
	w.note("%s is %s, cut off: %t", n.machine.name, what, cut)
	if cut {
		n.machine.network.Cut()
	}
	n.mu.Lock()
	do(n.machine)
	n.mu.Unlock()
	n.pause(300)
	n.machine.network.Heal()
}

// pauseCalls stops the goroutine that talks to the store, between two calls or with an answer that it has not read. The
// agent goes on to give out addresses.
func (w *randomWorld) pauseCalls(n *troubled) {
	w.note("the calls of %s pause", n.machine.name)
	n.machine.network.Pause()
	defer n.machine.network.Resume()
	n.pause(600)
}

// pauseAll stops the whole agent.
func (w *randomWorld) pauseAll(n *troubled) {
	w.note("%s pauses", n.machine.name)
	n.mu.Lock()
	defer n.mu.Unlock()
	w.pauseCalls(n)
}

// jump advances the boot clock, as after a sleep of the machine.
func (w *randomWorld) jump(n *troubled) {
	d := time.Duration(n.rng.Int64N(int64(2 * time.Hour)))
	w.note("the clock of %s jumps by %s", n.machine.name, d)
	n.machine.ahead.Add(int64(d))
}

// recreateNode deletes the Node of the machine, and creates it again.
func (w *randomWorld) recreateNode(n *troubled) {
	n.mu.RLock()
	dir, id, node := n.machine.dir, n.machine.controller.Status().Node, n.machine.kubernetes
	n.mu.RUnlock()
	w.note("the Node of %s is deleted", n.machine.name)
	w.goneMu.Lock()
	w.recreated[id] = dir
	w.goneMu.Unlock()
	node.delete()
	n.pause(300)
	node.create(fmt.Sprint("node-", n.rng.Uint64()))
}

// replace gives the name to another machine. The old one keeps its pods.
func (w *randomWorld) replace(n *troubled) {
	w.changing.RLock()
	defer w.changing.RUnlock()
	m := n.machine
	if n.rng.IntN(4) > 0 || !w.retire(m, maxReplaced) {
		return
	}
	w.note("%s is replaced", m.name)
	another := w.machine(m.name, n.rng.Uint64())
	w.wait(another.dir+" is connected", func() bool { return another.controller.Status().Connected })
	n.mu.Lock()
	n.machine = another
	n.mu.Unlock()
}

// retire lets the machine run without being used, unless there are too many.
func (w *randomWorld) retire(m *machine, most int) bool {
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	if len(w.gone) >= most {
		return false
	}
	w.gone = append(w.gone, m)
	return true
}

// lose has the machine lose what its agent remembers, while its pods run. It is another node from then on.
func (w *randomWorld) lose(n *troubled) {
	w.changing.RLock()
	defer w.changing.RUnlock()
	if n.copying.Load() || w.recovering() || !w.mayLose() {
		return
	}
	m := n.machine
	n.mu.Lock()
	former := w.loseFolder(m)
	n.mu.Unlock()
	w.note("%s has lost its folder, and was %s", m.dir, former)
	w.wait(m.dir+" is connected", func() bool { return m.controller.Status().Connected })
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	w.lost = append(w.lost, former)
}

func (w *randomWorld) mayLose() bool {
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	w.losses++
	return w.losses <= maxLost
}

// deleteLost deletes the nodes that machines were before they lost their folders, unless pods use their blocks.
func (w *randomWorld) deleteLost() {
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	w.lost = slices.DeleteFunc(w.lost, func(id cluster.NodeID) bool {
		err := w.nodeAdmin().Delete(w.Context(), id, true)
		if !errors.Is(err, admin.ErrBlocksInUse) {
			w.note("node %s, whose folder was lost, is deleted: %v", id, err)
		}
		if err != nil && !errors.Is(err, admin.ErrNoNode) {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.removed[id] = true
		return true
	})
}

// copyDisk starts a machine with a copy of the disk.
func (w *randomWorld) copyDisk(n *troubled) {
	if !w.mayCopy() {
		return
	}
	m := n.machine
	w.wait(m.dir+" is connected", func() bool { return m.controller.Status().Connected })
	n.copying.Store(true)
	defer n.copying.Store(false)
	if n.rng.IntN(3) == 0 {
		w.copyToAnother(n)
	} else {
		w.copyWhole(n)
	}
}

func (w *randomWorld) mayCopy() bool {
	w.goneMu.Lock()
	defer w.goneMu.Unlock()
	if w.copies >= maxCopied {
		return false
	}
	w.copies++
	return true
}

// copyToAnother starts the copy under another machine-id: it is another node, and the first one goes on.
func (w *randomWorld) copyToAnother(n *troubled) {
	w.changing.RLock()
	defer w.changing.RUnlock()
	w.note("the disk of %s is copied to a machine of another ID", n.machine.dir)
	c := w.copyOn(n.machine, fmt.Sprint("another-", n.rng.Uint64()), n.rng.Uint64())
	w.wait("the copy is another node", func() bool {
		_, _ = w.allocate(c, time.Millisecond)
		return c.controller.Status().Node != n.machine.controller.Status().Node
	})
	w.removeMachine(c)
}

// copyWhole starts a copy that has the machine-id, too. Both notice, and give out nothing. Then the copy goes away.
// When the store has lost the node's record, one of them becomes another node: it is under another Node than in its
// checkpoint.
func (w *randomWorld) copyWhole(n *troubled) {
	m := n.machine
	id := m.controller.Status().Node
	w.note("the disk of %s is copied", m.dir)
	c := w.copyOf(m, n.rng.Uint64())
	apart := false
	w.wait("both machines with key "+id.Key+" notice", func() bool {
		_, _ = w.allocate(c, time.Millisecond)
		first, second := m.controller.Status(), c.controller.Status()
		apart = second.Connected && first.Node != second.Node
		return apart || first.Contested != nil && second.Contested != nil
	})
	if apart {
		w.removeMachine(c)
		return
	}
	w.note("both notice that they are %s", id)
	w.stop(c)
	w.endPods(c)
	c.network.Close()
	w.wait("the contest for "+id.Key+" is over", func() bool { return w.nodeAdmin().Reset(w.Context(), id) == nil })
	w.wait(m.name+" goes on", func() bool { return m.controller.Status().Contested == nil })
	w.note("%s goes on", id)
}

// resetContests ends what a backup has brought back that was made while a copy ran. An administrator does that, when
// the doctor says so.
func (w *randomWorld) resetContests() {
	for _, n := range w.nodes {
		n.mu.RLock()
		if s := n.machine.controller.Status(); s.Contested != nil && !n.copying.Load() {
			w.note("the contest for %s is reset: %v", s.Node, w.nodeAdmin().Reset(w.Context(), s.Node))
		}
		n.mu.RUnlock()
	}
}

// administrate goes on until the trouble ends.
func (w *randomWorld) administrate() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.calm:
			return
		case <-tick.C:
			w.resetContests()
			w.deleteLost()
		}
	}
}

// removeMachine ends the machine, and then its node.
func (w *randomWorld) removeMachine(m *machine) {
	id := m.controller.Status().Node
	w.stop(m)
	w.endPods(m)
	m.network.Close()
	w.mu.Lock()
	w.removed[id] = true
	w.mu.Unlock()
	w.deleteNode(id)
}

func (w *world) deleteNode(id cluster.NodeID) {
	w.wait("node "+id.String()+" is deleted", func() bool {
		err := w.nodeAdmin().Delete(w.Context(), id, true)
		return err == nil || errors.Is(err, admin.ErrNoNode)
	})
	w.note("node %s is deleted", id)
}

// note records an event, for the reader of a failure.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, noteNow(format, args...))
}

func noteNow(format string, args ...any) string {
	return time.Now().Format("04:05.000 ") + fmt.Sprintf(format, args...)
}

// showNotes tells what happened last before a failure.
func (w *world) showNotes() {
	if !w.Failed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.notes[max(0, len(w.notes)-200):] {
		w.Log(line)
	}
}
