package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/node/tunnel"
)

// The kinds of findings.
const (
	recordMissing = "node-record-missing"
	recordLost    = "node-peer-record-missing"
	blockConflict = "node-block-conflict"
	routeMissing  = "node-route-missing"
	storeAway     = "node-store-away"
	tunnelDiffers = "node-tunnel-differs"
	blockOverlaps = "node-block-overlaps"
)

// checker compares what the records of nodes say with what holds here: the node's doctor.Checker.
type checker struct {
	node    *Node
	service string // the address of the Service kubernetes; "" outside of a pod
}

func newChecker(n *Node) *checker { return &checker{n, os.Getenv("KUBERNETES_SERVICE_HOST")} }

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "node" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{
			Name: recordMissing, Meaning: "the store has no record that tells other nodes how to reach this one's pods",
			Repair: "the agent writes it as soon as the store takes it",
		},
		{
			Name: recordLost, Meaning: "the store has lost the record of another node, as after the restore of a backup; its last content still counts here",
			Repair: "the agent of that node writes it again; if the machine is gone, delete the node",
		},
		{
			Name: blockConflict, Meaning: "the records of two nodes have the same block, or a node's record has a block with the address of a node: no route leads there for the second one",
			Repair: "give each node prefixes of its own",
		},
		{
			Name: routeMissing, Meaning: "there is no route to a block of another node, or another route than its record asks for",
			Repair: "the agent tries it again; remove another program's route with that program",
		},
		{
			Name: storeAway, Note: true,
			Meaning: "the store has not answered since this agent has started: routes and policies use what was known of other nodes before, or know of none",
			Repair:  "have the store answer",
		},
		{
			Name: blockOverlaps, Event: true, Meaning: "a prefix of this node's pods has an address of the node, or of the Service kubernetes: pods do not reach it, or it does not reach them",
			Repair: "give pods another range (the cluster CIDR of kube-controller-manager, or the pool) than nodes and Services",
		},
		{
			Name: tunnelDiffers, Meaning: "the VXLAN device, its programs or addresses, the nodes in its map, or what keeps pods from forging its packets are not as they should be",
			Repair: "they are made so again",
		},
	}
}

// Examine implements doctor.Checker. There is nothing about one attachment.
func (c *checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	view, _ := c.node.peers.View()
	if only == "" && view.StoreAway {
		findings = append(findings, doctor.Finding{Kind: storeAway, Subject: "node " + view.Self.Node.Name, Detail: awayText(view)})
	}
	if only != "" || !view.Ready {
		return findings, nil
	}
	self := view.Self
	if c.node.publisher != nil && !view.StoreAway && self.Node.Key != "" && view.Own == nil {
		findings = append(findings, doctor.Finding{Kind: recordMissing, Subject: "node " + self.Node.String(), Detail: "the store has no record of the node's network"})
	}
	findings = append(findings, overlaps(self, c.service)...)
	reach := c.node.Routing()
	for _, p := range view.Peers {
		if p.Missing {
			findings = append(findings, doctor.Finding{
				Kind: recordLost, Subject: "node " + p.Node.String(), Detail: fmt.Sprintf("the store has no record of it any more; it had addresses %v and %d blocks", p.Addresses, len(p.NodeNetwork.Blocks)),
			})
		}
	}
	for _, conflict := range view.Conflicts {
		findings = append(findings, doctor.Finding{Kind: blockConflict, Subject: fmt.Sprintf("block %s of node %s", conflict.Block, conflict.Node), Detail: conflict.Reason})
	}
	for block, err := range reach.Errors {
		findings = append(findings, doctor.Finding{Kind: routeMissing, Subject: "block " + block.String(), Detail: err.Error()})
	}
	differences, err := c.node.router.compareTunnel(view)
	if err != nil {
		return findings, err
	}
	for _, difference := range differences {
		findings = append(findings, doctor.Finding{
			Kind: tunnelDiffers, Subject: "device " + tunnel.Device, Detail: difference, Repair: func(context.Context) error { return c.node.router.reconcileNow() },
		})
	}
	have, err := c.node.kernel.routes()
	if err != nil {
		return nil, err
	}
	for block, how := range reach.Reach {
		if (how == ReachRoute || how == ReachTunnel) && have[block] == (hop{}) && reach.Errors[block] == nil {
			findings = append(findings, doctor.Finding{
				Kind: routeMissing, Subject: "block " + block.String(), Detail: "no route to it", Repair: func(context.Context) error { return c.node.router.reconcileNow() },
			})
		}
	}
	return findings, nil
}

// overlaps finds blocks of this node with its own addresses, or with the address of the Service kubernetes.
func overlaps(self Self, service string) (findings []doctor.Finding) {
	what := map[netip.Addr]string{}
	for _, addr := range self.Addresses {
		what[addr] = "the node's own address"
	}
	if addr, err := netip.ParseAddr(service); err == nil {
		what[addr] = "the address of the Service kubernetes"
	}
	for _, block := range self.Blocks {
		for addr, text := range what {
			if block.Contains(addr) {
				findings = append(findings, doctor.Finding{Kind: blockOverlaps, Subject: "block " + block.String(), Detail: "it has " + text + ", " + addr.String()})
			}
		}
	}
	return findings
}

// awayText is what counts while the store is away.
func awayText(v View) string {
	if v.AsOf.IsZero() {
		return "the store has not answered since the start of this agent, and nothing is known of other nodes"
	}
	return fmt.Sprintf("the store has not answered since the start of this agent: routes and policies use what was known of other nodes at %s", v.AsOf.Format(time.RFC3339))
}
