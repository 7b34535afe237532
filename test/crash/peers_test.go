package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// peerOperations are interrupted on a node that remembers another node.
var peerOperations = []row{
	{"peers, the first write of what is known", 1, remembers(true)},
	{"peers, a later write of what is known", 1, remembers(false)},
}

// newPeerScene has a node with CIDRs of its own, and an API server that has the record of another one.
func newPeerScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := prepareScene(t, testutil.NewFabric)
	s.startAPI()
	s.mode = append(s.ownCIDRs(), s.apiFlags()...)
	s.peers = s.peerRecord()
	s.begin()
	s.settleIn(pods)
	return s
}

// peerRecord returns what writes the record of another node, each time another one.
func (s *scene) peerRecord() func() error {
	s.t.Helper()
	record := cluster.NodeNetwork{Node: node.IDOfName("other"), Blocks: prefixes("10.77.0.0/24"), Routing: cluster.RoutingExternal}
	s.others = []nodecheck.OtherNode{{NodeNetwork: record}}
	return func() (err error) {
		record.Agent += "x"
		record, err = s.records.Networks.Put(s.t.Context(), record)
		return err
	}
}

// remembers: a start without the store knows the other node, or, when the file was never written, none. Nothing stops
// the agent.
func remembers(first bool) func(*scene) operation {
	return func(s *scene) operation {
		file := filepath.Join(s.storeDir(), "peers.db")
		knows := func(want func(v1.NetworkStatus) bool) error {
			return (&pools{agent: s.agent}).within(func() error {
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
				s.stop()
				return start()
			},
			run: s.stop,
			judge: func() error {
				if err := s.agentDies(); err != nil {
					return err
				}
				s.frontend.Stop()
				err := s.restart()
				if err == nil {
					err = knows(func(n v1.NetworkStatus) bool {
						never := first && s.hit != nil && n.AsOf.IsZero() && n.Peers == 0
						return n.StoreAway && (never || n.Peers == 1)
					})
				}
				err = errors.Join(err, s.frontend.Start())
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
