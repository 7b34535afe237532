package crash

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// otherNodeOperations are what an agent does about another node on its link. The API server has the records of that
// node.
var otherNodeOperations = []row{
	{"agent, another node is deleted, native", 1, otherNodeDeleted(native)},
	{"agent, another node is deleted, vxlan", 1, otherNodeDeleted(vxlan)},
	{"agent, another node comes, native", 1, otherNodeComes(native)},
	{"agent, another node comes, vxlan", 1, otherNodeComes(vxlan)},
}

// newOtherNodesScene has a node with CIDRs of its own and policies, on a link with others, and an API server.
func newOtherNodesScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := prepareScene(t, testutil.NewLAN)
	s.startAPI()
	s.mode = append(s.ownCIDRs(), s.apiFlags()...)
	s.begin()
	s.restrict(ingressPolicies)
	s.settleIn(pods)
	return s
}

// otherNodeComes: killed wherever, the next agent has all that the records of the node ask for.
func otherNodeComes(routing string) func(*scene) operation {
	return func(s *scene) operation {
		other := newOtherNode(s, routing)
		return operation{
			victim:  s.agents,
			only:    ofOtherNodes,
			prepare: func() error { return errors.Join(other.remove(), s.check("without the other node", nil)) },
			run: func() {
				if err := other.put(); err != nil {
					s.t.Error(err)
				}
				_ = s.eventually(s.knowsOthers)
			},
			judge: func() error { return errors.Join(s.agentDies(), s.restart(), s.check("after the restart", nil)) },
		}
	}
}

// otherNodeDeleted: killed wherever, the next agent has nothing of the node. The killed agent knows the node from a
// previous agent, too.
func otherNodeDeleted(routing string) func(*scene) operation {
	return func(s *scene) operation {
		other := newOtherNode(s, routing)
		return operation{
			victim: s.agents,
			only:   ofOtherNodes,
			prepare: func() error {
				if err := errors.Join(other.put(), s.eventually(s.knowsOthers)); err != nil {
					return err
				}
				s.stop()
				return errors.Join(s.restart(), s.check("with the other node", nil))
			},
			run: func() {
				if err := other.remove(); err != nil {
					s.t.Error(err)
				}
				_ = s.eventually(s.knowsOthers)
			},
			judge: func() error { return errors.Join(s.agentDies(), s.restart(), s.check("after the restart", nil)) },
		}
	}
}

// ofOtherNodes are the effects with which an agent changes maps, programs on devices, routes and rules. Its writes to a
// file are a row of their own.
func ofOtherNodes(e effect) bool {
	return strings.HasPrefix(e.call, "bpf ") || strings.HasPrefix(e.call, "RTM_") || strings.Contains(e.call, "nftables")
}

// knowsOthers reports whether the node has all that it is to have of other nodes, and no more.
func (s *scene) knowsOthers() error {
	findings, err := s.checker.Look(nodecheck.Want{Live: s.live, Others: s.others})
	if err == nil && len(findings) > 0 {
		err = fmt.Errorf("%v", findings)
	}
	return err
}

// otherNode is another node that has records and nothing else.
type otherNode struct {
	*scene
	admin   *admin.Nodes
	routing cluster.RoutingMode
}

// newOtherNode has the scene's agent run in that mode from now on.
func newOtherNode(s *scene, routing string) *otherNode {
	s.t.Helper()
	o := &otherNode{scene: s, routing: cluster.RoutingNative}
	o.admin = admin.NewNodes(s.records)
	err := s.startAgain(routing)
	if routing == vxlan {
		o.routing = cluster.RoutingVXLAN
		err = errors.Join(err, s.tunnelIs(nil))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// put has the store get the records of a node that was not there before, with the addresses of the one before.
func (o *otherNode) put() error {
	id := cluster.NodeID{Name: "other", Key: cluster.NewKey()}
	addresses := func(v4, v6 string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
	}
	network := cluster.NodeNetwork{
		Node: id, Agent: "x", Routing: o.routing, Addresses: addresses("192.0.2.77", "2001:db8::77"),
		Blocks: prefixes("10.77.0.0/24", "fd00:77::/64"), Health: addresses("10.77.0.2", "fd00:77::2"),
	}
	if o.routing == cluster.RoutingVXLAN {
		network.TunnelPort, network.Tunnel = 8472, addresses("10.77.0.3", "fd00:77::3")
	}
	group := cluster.EndpointGroup{
		Node: id, LabelSets: []cluster.LabelSet{{Namespace: guests, Labels: map[string]string{"app": "web"}}, {Namespace: residents}},
		Endpoints: []cluster.PublishedEndpoint{
			{Addresses: addresses("10.77.0.10", "fd00:77::10"), Pod: "web"},
			{Addresses: addresses("10.77.0.11", "fd00:77::11"), Pod: "neighbour", LabelSet: 1},
		},
	}
	_, networkErr := o.records.Networks.Put(o.t.Context(), network)
	_, groupErr := o.records.Endpoints.Put(o.t.Context(), group)
	o.others = []nodecheck.OtherNode{{NodeNetwork: network, Groups: []cluster.EndpointGroup{group}}}
	return errors.Join(networkErr, groupErr)
}

// remove deletes the node from the store, if there is one.
func (o *otherNode) remove() (err error) {
	for _, other := range o.others {
		err = errors.Join(err, o.admin.Delete(o.t.Context(), other.Node, true))
	}
	o.others = nil
	return err
}
