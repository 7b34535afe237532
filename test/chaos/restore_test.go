package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	restorer "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// save takes a snapshot of what one member has, which may be behind the others. When it does not answer, an older snapshot stays.
func (e *etcd) save(w *world, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dial := func(ctx context.Context, addr string) (conn net.Conn, err error) {
		err = e.fabric.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
			return err
		})
		return conn, err
	}
	path, now := filepath.Join(e.dir, "snapshot.db"), time.Now()
	_, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), clientv3.Config{
		Endpoints: []string{e.members[random.IntN(members)].config.Client}, DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	}, path)
	if err != nil {
		w.wrongs.add("no snapshot of etcd", err.Error())
		return
	}
	e.snapshot, e.taken = path, now
}

// restore does what an administrator does: all members end, and begin as another cluster with what the snapshot has.
// When the restore is announced, every node was told so before they begin. Else only one node reaches them at first,
// and has to notice by itself.
func (e *etcd) restore(w *world, first *host, announced bool, wait func()) error {
	if e.snapshot == "" {
		return nil
	}
	for _, m := range e.members {
		m.kill()
		if err := os.RemoveAll(m.config.Dir); err != nil {
			return err
		}
	}
	e.restored++
	e.begin()
	for _, m := range e.members {
		if err := m.restore(e.snapshot); err != nil {
			return fmt.Errorf("restore etcd on %s: %w", m.node.Name, err)
		}
	}
	w.counts.restores.Add(1)
	w.counts.backThen.Add(int64(time.Since(e.taken)))
	if announced {
		w.counts.announced.Add(1)
		for _, h := range w.hosts {
			if err := h.requestRecovery(); err != nil {
				return err
			}
		}
		return e.start(e.members...)
	}
	open, err := e.shun(slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h == first }))
	if err == nil {
		err = e.start(e.members...)
	}
	wait()
	return errors.Join(err, open())
}

// restore makes the member's folder of a snapshot.
func (m *member) restore(path string) error {
	wal.SegmentSizeBytes = walSegment
	return restorer.NewV3(zap.NewNop()).Restore(restorer.RestoreConfig{
		SnapshotPath: path, Name: m.config.Name, OutputDataDir: m.config.Dir, PeerURLs: []string{m.config.Peer},
		InitialCluster: m.config.Initial, InitialClusterToken: m.config.Token,
	})
}

// shun has no member answer these nodes, until it is undone.
func (e *etcd) shun(hosts []*host) (undo func() error, err error) {
	var nodes []*testutil.Node
	for _, h := range hosts {
		nodes = append(nodes, h.node)
	}
	var undos []func() error
	for _, m := range e.members {
		undo, failure := m.shun(nodes)
		undos, err = append(undos, undo), errors.Join(err, failure)
	}
	return func() (err error) {
		for _, undo := range undos {
			err = errors.Join(err, undo())
		}
		return err
	}, err
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
// the pool again that the snapshot may lack, and ends the recovery.
func (w *world) endRecovery(stop <-chan struct{}) {
	var err error
	for end := time.Now().Add(2 * testutil.Patience); time.Now().Before(end); {
		if err = w.tryEndRecovery(); err == nil || !sleep(100*time.Millisecond, stop) {
			return
		}
	}
	w.wrongs.add("the recovery does not end", err.Error())
}

// errNoRecovery is returned when no node knows of a recovery.
var errNoRecovery = errors.New("no recovery is under way")

func (w *world) tryEndRecovery() error {
	written := 0
	for _, h := range w.hosts {
		var status v1.Status
		if err := h.agent.Do(http.MethodGet, "/v1/status", nil, &status); err != nil {
			return fmt.Errorf("%s: %w", h.node.Name, err)
		}
		switch r := status.Recovery; {
		case r == nil:
		case !r.UnderWay || r.Unwritten:
			return fmt.Errorf("%s has not written its blocks: %+v", h.node.Name, r)
		default:
			written++
		}
	}
	switch written {
	case 0:
		return errNoRecovery
	case len(w.hosts):
	default:
		return fmt.Errorf("%d of %d nodes know of the recovery", written, len(w.hosts))
	}
	h := w.hosts[0]
	if w.fresh.Name != "" {
		if err := h.agent.Do(http.MethodPut, "/v1/pool/"+w.fresh.Name, w.fresh, nil); err != nil {
			return fmt.Errorf("put pool %s: %w", w.fresh.Name, err)
		}
	}
	return h.agent.Do(http.MethodPost, "/v1/recovery", v1.RecoveryRequest{End: true}, nil)
}
