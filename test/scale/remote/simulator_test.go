package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
)

// What pods there are: each is of one of these deployments.
const (
	namespaces  = 100
	deployments = 10 // of a namespace
)

// simulator is nodes without agents, which write what agents would.
type simulator struct {
	backend cluster.Backend
	nodes   []*simulated
}

type simulated struct {
	record cluster.NodeNetwork
	groups []cluster.EndpointGroup
	pods   int
}

func newSimulator(backend cluster.Backend, nodes, pods int) *simulator {
	s := &simulator{backend: backend}
	for i := range nodes {
		s.nodes = append(s.nodes, newSimulated(i, pods))
	}
	return s
}

func newSimulated(number, pods int) *simulated {
	id := node.IDOfName(fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number>>8, number&255))
	n := &simulated{pods: pods, record: cluster.NodeNetwork{
		Node: id, Agent: "simulated", AgentVersion: "v0.13.0", Routing: cluster.RoutingNative, Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{198, 18, byte(number >> 8), byte(number)}), addr6(0xfd01, number, 0),
		},
		Blocks: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + number>>8), byte(number), 0}), 24), netip.PrefixFrom(addr6(0xfd02, number, 0), 120),
		},
	}}
	for slot := 0; slot**groupSize < pods; slot++ {
		n.groups = append(n.groups, cluster.EndpointGroup{})
		n.set(slot, number, slot**groupSize, min(pods, (slot+1)**groupSize))
	}
	return n
}

func addr6(first uint16, number, host int) netip.Addr {
	return netip.AddrFrom16([16]byte{byte(first >> 8), byte(first), 2: byte(number >> 8), 3: byte(number), 14: byte(host >> 8), 15: byte(host)})
}

// addresses are the addresses of a pod of a node.
func addresses(number, pod int) []netip.Addr {
	all := []netip.Addr{netip.AddrFrom4([4]byte{10, byte(128 + number>>8), byte(number), byte(pod + 2)})}
	if !*ipv4Only {
		all = append(all, addr6(0xfd02, number, pod+2))
	}
	return all
}

// set makes a group contain these pods.
func (n *simulated) set(slot, number, from, to int) {
	g := cluster.EndpointGroup{Node: n.record.Node, Slot: slot, Version: n.groups[slot].Version}
	sets := map[int]int{}
	for pod := from; pod < to; pod++ {
		deployment := deploymentOf(number, pod)
		set, ok := sets[deployment]
		if !ok {
			set = len(g.LabelSets)
			sets[deployment] = set
			g.LabelSets = append(g.LabelSets, labelsOf(deployment))
		}
		g.Endpoints = append(g.Endpoints, cluster.PublishedEndpoint{
			Addresses: addresses(number, pod), Pod: fmt.Sprintf("app-%d-6d4f9c7b58-%05d", deployment, number*100+pod), LabelSet: set,
			NamedPorts: []cluster.PublishedPort{{Name: "http", Protocol: "TCP", Port: 8080}},
		})
	}
	n.groups[slot] = g
}

func deploymentOf(number, pod int) int { return (number*7 + pod*13) % (namespaces * deployments) }

func labelsOf(deployment int) cluster.LabelSet {
	return cluster.LabelSet{
		Namespace: namespaceName(deployment / deployments), Labels: map[string]string{
			"app.kubernetes.io/name": fmt.Sprint("app-", deployment), "app": fmt.Sprint("app-", deployment%deployments), "tier": fmt.Sprint("tier-", deployment%3),
			"pod-template-hash": "6d4f9c7b58",
		},
	}
}

func namespaceName(number int) string { return fmt.Sprintf("team-%d", number) }

// write writes everything.
func (s *simulator) write(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range s.nodes {
		all.Go(func() error {
			n := s.nodes[i]
			var err error
			n.record, err = s.backend.Networks.Put(ctx, n.record)
			for slot := range n.groups {
				err = errors.Join(err, s.put(ctx, i, slot))
			}
			return err
		})
	}
	return all.Wait()
}

func (s *simulator) put(ctx context.Context, number, slot int) (err error) {
	g := &s.nodes[number].groups[slot]
	*g, err = s.backend.Endpoints.Put(ctx, *g)
	return err
}

// toggle removes the last pod of a node's first group, or adds it again.
func (s *simulator) toggle(ctx context.Context, number int) (pod int, there bool, err error) {
	n := s.nodes[number]
	full := min(n.pods, *groupSize)
	there = len(n.groups[0].Endpoints) < full
	to := full - 1
	if there {
		to = full
	}
	n.set(0, number, 0, to)
	return full - 1, there, s.put(ctx, number, 0)
}

// expected are the addresses of all pods and nodes.
func (s *simulator) expected() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, n := range s.nodes {
		for _, addr := range n.record.Addresses {
			all[addr] = true
		}
		for _, g := range n.groups {
			for _, ep := range g.Endpoints {
				for _, addr := range ep.Addresses {
					all[addr] = true
				}
			}
		}
	}
	return all
}

// bytes is the size of a full group, as JSON.
func (s *simulator) bytes(t *testing.T) int {
	t.Helper()
	text, err := json.Marshal(s.nodes[len(s.nodes)-1].groups[0])
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}
