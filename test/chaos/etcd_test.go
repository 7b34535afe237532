package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// members is how many an etcd has: one may be away at any time.
const members = 3

// etcd is a cluster of members in namespaces of their own, each a process that can be stopped in the middle of anything.
type etcd struct {
	dir      string
	fabric   *testutil.Fabric
	members  []*member
	restored int    // how often; each time another cluster begins
	snapshot string // file; "" before the first
	taken    time.Time
}

func startEtcd(t *testing.T, fabric *testutil.Fabric) *etcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &etcd{dir: dir, fabric: fabric}
	for range members {
		e.members = append(e.members, newMember(t, fabric))
	}
	e.begin()
	if err := e.start(e.members...); err != nil {
		t.Fatal(err)
	}
	return e
}

// begin has the members be those of another cluster, with other folders.
func (e *etcd) begin() {
	var all []string
	for _, m := range e.members {
		all = append(all, m.config.Name+"="+m.config.Peer)
	}
	for _, m := range e.members {
		m.config.Initial, m.config.Token = strings.Join(all, ","), fmt.Sprintf("chaos-%d", e.restored)
		m.config.Dir = filepath.Join(e.dir, fmt.Sprintf("%s-%d", m.config.Name, e.restored))
	}
}

// start returns when these members serve. Most of all must run then.
func (e *etcd) start(which ...*member) error {
	var errs []error
	for _, m := range which {
		errs = append(errs, m.start())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range which {
		errs = append(errs, m.serves())
	}
	return errors.Join(errs...)
}

// endpoints are the URLs of all members.
func (e *etcd) endpoints() string {
	var urls []string
	for _, m := range e.members {
		urls = append(urls, m.config.Client)
	}
	return strings.Join(urls, ",")
}

// How long etcd is whole, and how long it is not.
const shortestPeace, longestPeace, shortestOutage, longestOutage = 500 * time.Millisecond, 3 * time.Second, 50 * time.Millisecond, 5 * time.Second

// outage is one kind. It ends before it returns, and at once when it is told to stop.
type outage func(w *world, random *rand.Rand, stop <-chan struct{}) error

// disturb goes through all kinds of outages, in an order by chance, and then restores the whole cluster from a snapshot
// of a while before, until it is told to end. All members run at the end. One node claims blocks of a new pool from the
// snapshot until the restore, and another one, which reaches the restored cluster first, after it: what the store has
// forgotten must not be given to that one.
func (e *etcd) disturb(w *world, random *rand.Rand, stop <-chan struct{}) {
	outages := []outage{e.killOne, e.killMost, e.hang, e.partition, e.partitionNode}
	for {
		snapshotBefore, order := random.IntN(len(outages)), random.Perm(len(w.hosts))
		before, after := w.hosts[order[0]], w.hosts[order[1]]
		pool := w.newPool(stop)
		for i, kind := range random.Perm(len(outages)) {
			if !sleep(between(random, shortestPeace, longestPeace), stop) {
				return
			}
			if i == snapshotBefore {
				e.save(w, random)
				w.favour(pool, before)
			}
			if err := outages[kind](w, random, stop); err != nil {
				w.wrongs.add("etcd does not come back", err.Error())
				return
			}
		}
		if !sleep(between(random, shortestPeace, longestPeace), stop) {
			return
		}
		w.favour(pool, after)
		alone := between(random, shortestPeace, longestPeace)
		if err := e.restore(w, after, random.IntN(2) == 0, func() { sleep(alone, stop) }); err != nil {
			w.wrongs.add("etcd is not restored", err.Error())
			return
		}
		w.endRecovery(stop)
	}
}

// killOne leaves a majority.
func (e *etcd) killOne(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return e.killSome(w, random, stop, 1)
}

// killMost leaves none.
func (e *etcd) killMost(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return e.killSome(w, random, stop, 2+random.IntN(members-1))
}

func (e *etcd) killSome(w *world, random *rand.Rand, stop <-chan struct{}, n int) error {
	var killed []*member
	for _, i := range random.Perm(members)[:n] {
		e.members[i].kill()
		killed = append(killed, e.members[i])
		w.counts.membersKilled.Add(1)
	}
	sleep(between(random, shortestOutage, longestOutage), stop)
	return e.start(killed...)
}

// hang stops one, with all its connections.
func (e *etcd) hang(w *world, random *rand.Rand, stop <-chan struct{}) error {
	m := e.members[random.IntN(members)]
	w.counts.hangs.Add(1)
	err := m.cmd.Process.Signal(unix.SIGSTOP)
	sleep(between(random, shortestOutage, longestOutage), stop)
	return errors.Join(err, m.cmd.Process.Signal(unix.SIGCONT))
}

// partition takes the link of one down.
func (e *etcd) partition(w *world, random *rand.Rand, stop <-chan struct{}) error {
	w.counts.partitions.Add(1)
	return e.cutOff(e.members[random.IntN(members)].node, random, stop)
}

// partitionNode takes the link of the last node down, which no traffic goes by.
func (e *etcd) partitionNode(w *world, random *rand.Rand, stop <-chan struct{}) error {
	w.counts.nodesCut.Add(1)
	return e.cutOff(w.hosts[len(w.hosts)-1].node, random, stop)
}

func (e *etcd) cutOff(node *testutil.Node, random *rand.Rand, stop <-chan struct{}) error {
	err := e.fabric.Disconnect(node)
	sleep(between(random, shortestOutage, longestOutage), stop)
	return errors.Join(err, e.fabric.Connect(node))
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// sleep is false when it was ended.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}
