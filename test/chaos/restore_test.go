package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/internal/testutil"
)

// save makes a backup.
func (a *api) save() {
	backup := a.Backup()
	a.version, a.backup, a.taken = a.versionNow(), &backup, time.Now()
}

func (a *api) versionNow() uint64 {
	n, _ := strconv.ParseUint(a.Version(), 10, 64)
	return n
}

// restoreWay is how an administrator restores.
type restoreWay int

const (
	unannounced restoreWay = iota
	announced
	announcedBumped // and raises versions above all earlier ones
)

// leastNews is how many versions the API is set back at least without an announcement: nodes notice a restored API that
// is behind what they have seen (docs/limits.md), and meanwhile the test goes on to write pods.
const leastNews = 200

// restore does what an administrator does: all servers end, and begin again with what the backup has.
// When the restore is announced, every node was told so before they begin. Else only one node reaches them at first,
// and has to notice by itself.
func (a *api) restore(w *world, first *host, way restoreWay, wait func()) error {
	if a.backup == nil {
		return nil
	}
	a.stop(a.servers...)
	if way == unannounced && a.versionNow() < a.version+leastNews {
		way = announced
	}
	bump := uint64(0)
	if way == announcedBumped {
		a.bump += 1e9 // the same backup may be restored twice
		bump = a.bump
	}
	w.counts.restores.Add(1)
	w.counts.backThen.Add(int64(time.Since(a.taken)))
	if way != unannounced {
		w.counts.announced.Add(1)
		a.Restore(*a.backup, bump)
		for _, h := range w.hosts {
			if err := h.requestRecovery(); err != nil {
				return err
			}
		}
		return a.start(a.servers...)
	}
	var others []*testutil.Node
	for _, h := range w.hosts {
		if h != first {
			others = append(others, h.node)
		}
	}
	open, err := a.shun(others)
	a.Restore(*a.backup, 0)
	err = errors.Join(err, a.start(a.servers...))
	wait()
	return errors.Join(err, open())
}

// requestRecovery tries again while the agent is away.
func (h *host) requestRecovery() error {
	return testutil.Poll(testutil.Patience, func() error {
		out, err := h.porin("ipam", "recover", "--begin")
		if err != nil {
			err = fmt.Errorf("porin ipam recover --begin: %w: %s", err, out)
		}
		return err
	})
}

// endRecovery is what an administrator does after a restore: it waits until every node has written its blocks, creates
// the pool again that the snapshot may lack, and ends the recovery. Agents are killed meanwhile: what one has written
// counts when it is away again, too.
func (w *world) endRecovery(stop <-chan struct{}) {
	reasons := map[string]int{} // why the recovery cannot be ended yet, and how often
	written := map[*host]bool{}
	for end := time.Now().Add(2 * testutil.Patience); time.Now().Before(end); {
		err := w.tryEndRecovery(written)
		if err == nil || !sleep(100*time.Millisecond, stop) {
			return
		}
		reasons[err.Error()]++
	}
	w.wrongs.add("the recovery does not end", fmt.Sprint(reasons))
}

// tryEndRecovery ends the recovery when all nodes are in written. It adds those that have written their blocks.
func (w *world) tryEndRecovery(written map[*host]bool) error {
	for _, h := range w.hosts {
		if written[h] {
			continue
		}
		var status v1.Status
		if err := h.agent.Do(http.MethodGet, "/v1/status", nil, &status); err != nil {
			return fmt.Errorf("%s: %w", h.node.Name, err)
		}
		if r := status.Recovery; r == nil || !r.UnderWay || r.Unwritten {
			return fmt.Errorf("%s has not written its blocks", h.node.Name)
		}
		written[h] = true
	}
	if w.fresh.Name != "" {
		if err := w.api.putPool(w.fresh); err != nil {
			return fmt.Errorf("put pool %s: %w", w.fresh.Name, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return admin.EndRecovery(ctx, w.api.records, false)
}
