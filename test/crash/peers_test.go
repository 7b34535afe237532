package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// peerOperations are those of a node that remembers another one, in an etcd.
var peerOperations = []row{
	{"peers, the first write of what is known", 1, remembers(true)},
	{"peers, a later write of what is known", 1, remembers(false)},
}

// newPeerScene has a node with CIDRs of its own, and an etcd that has the record of another one.
func newPeerScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := prepareScene(t)
	s.etcd = etcdtest.Start(t, nil)
	cfg := s.etcd.Config()
	s.peers = peerRecord(t, cfg)
	s.mode = []string{
		"--ipam-pod-cidr=" + s.node.PodIPv4.String() + "," + s.node.PodIPv6.String(), "--ipam-quarantine=0s",
		"--store=etcd", "--store-etcd-endpoints=" + cfg.Etcd.Endpoints[0], "--store-etcd-prefix=" + cfg.Etcd.Prefix,
	}
	s.begin()
	s.settleIn(pods)
	return s
}

// peerRecord returns what writes the record of another node, each time another one.
func peerRecord(t *testing.T, cfg store.Config) func() error {
	t.Helper()
	networks := cluster.OnStore(storetest.Open(t, cfg)).Networks
	record := cluster.NodeNetwork{Node: node.IDOfName("other"), Blocks: prefixes("10.77.0.0/24"), Routing: cluster.RoutingExternal}
	return func() (err error) {
		record.Agent += "x"
		record, err = networks.Put(t.Context(), record)
		return err
	}
}

// remembers: a start without the store knows the other node, or, when the file was never written, none. Nothing stops the agent.
func remembers(first bool) func(*scene) operation {
	return func(s *scene) operation {
		file := filepath.Join(s.storeDir(), "peers.db")
		knows := func(want func(v1.NetworkStatus) bool) error {
			return (&pools{s.agent}).within(func() error {
				var status v1.Status
				if err := s.agent.Get("/v1/status", &status); err != nil {
					return err
				}
				if !want(status.Network) {
					return fmt.Errorf("the agent knows %+v of the network", status.Network)
				}
				return nil
			})
		}
		start := func() error {
			if err := errors.Join(s.peers(), s.restart()); err != nil {
				return err
			}
			return knows(func(n v1.NetworkStatus) bool { return n.Peers == 1 })
		}
		end := func() {
			_ = unix.Kill(s.agent.PID(), unix.SIGTERM)
			s.agent.Ended(reach)
		}
		return operation{
			victim: s.agents,
			only:   func(e effect) bool { return strings.HasPrefix(filepath.Base(e.on), "peers.db") },
			prepare: func() error {
				s.agent.End()
				if first {
					for _, name := range []string{file, file + ".new"} {
						if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
							return err
						}
					}
				}
				if err := start(); err != nil || first {
					return err
				}
				end()
				return start()
			},
			run: end,
			judge: func() error {
				if err := s.agentDies(); err != nil {
					return err
				}
				s.etcd.Stop()
				err := s.restart()
				if err == nil {
					err = knows(func(n v1.NetworkStatus) bool {
						never := first && s.hit != nil && n.AsOf.IsZero() && n.Peers == 0
						return n.StoreAway && (never || n.Peers == 1)
					})
				}
				s.etcd.Start(s.t)
				if err == nil {
					err = knows(func(n v1.NetworkStatus) bool { return !n.StoreAway && n.Peers == 1 })
				}
				if err != nil {
					return err
				}
				return s.check("when the store answers", nil)
			},
		}
	}
}
