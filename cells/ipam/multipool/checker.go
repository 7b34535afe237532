package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
)

// The kinds of findings.
const (
	findingBlockUnreadable  = "block-unreadable"
	findingPoolUnreadable   = "pool-unreadable"
	findingBlockOverlap     = "block-overlap"
	findingBlockWithoutPool = "block-without-pool"
	findingBlockOrphan      = "block-orphan"
	findingBlockUnknown     = "block-unknown"
	findingBlockMissing     = "block-missing"
	findingBlockConflict    = "block-conflict"
	findingNodeContested    = "node-contested"
	findingRecovery         = "store-recovery"
)

// Checker compares the blocks of the cluster with each other, with the pools and with what this node holds. Each
// examination lists all blocks, so an agent by itself seldom makes one.
type Checker struct {
	backend    cluster.Backend
	controller *Controller
	nodes      int // nodes with blocks at the last examination
}

var _ doctor.Costly = (*Checker)(nil)

// NewChecker returns the checker of a node.
func NewChecker(b cluster.Backend, c *Controller) *Checker {
	return &Checker{backend: b, controller: c}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "multipool" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	kinds := []doctor.Kind{
		{Name: findingBlockUnreadable, Meaning: "a block in the store cannot be read: no node claims it", Repair: "upgrade the agents if a later version has written it; else delete the record"},
		{Name: findingPoolUnreadable, Meaning: "a pool in the store cannot be read: no node claims its blocks", Repair: "upgrade the agents if a later version has written it; else put the pool again"},
		{Name: findingBlockOverlap, Meaning: "two blocks have addresses in common", Repair: "delete the pods that use one of the two: its node gives it back"},
		{Name: findingBlockWithoutPool, Meaning: "nodes have blocks of a pool that does not exist, or is another one", Repair: "create the pool again, or delete the pods that use its addresses: then the nodes give the blocks back"},
		{Name: findingBlockOrphan, Meaning: "the owner of a block is no node of the cluster", Repair: "run the command that it names"},
		{Name: findingBlockUnknown, Meaning: "a block is this node's by the store, and the node does not know it", Repair: "it is deleted, or adopted if addresses of it are in use here"},
		{Name: findingBlockMissing, Meaning: "this node has a block that the store does not have", Repair: "its claim is created again, and a recovery begins"},
		{Name: findingBlockConflict, Meaning: "addresses of a block are in use here, and another node owns it: nothing more of it is given out", Repair: "delete the pods that use its addresses on one of the two nodes"},
		{Name: findingNodeContested, Meaning: "another machine has this node's key: neither gives out addresses", Repair: "on the copy, remove the file node-key in its --store-dir and restart its agent; then run porin node reset, or porin cluster node reset"},
		{Name: findingRecovery, Meaning: "the store was or is to be rolled back: no node claims blocks before an administrator ends the recovery", Repair: "see porin ipam recover"},
	}
	for i := range kinds {
		kinds[i].About = doctor.Addresses
	}
	return kinds
}

const (
	leastEvery  = 30 * time.Minute // between two examinations that no user asked for
	perNode     = 2 * time.Second  // added for each node: all agents together examine about every other second
	examineTime = 10 * time.Second // limit for an examination
	answerTime  = time.Second      // limit for the first answer of the store: the doctor's caller does not wait for a store that hangs
)

// Every implements doctor.Costly.
func (c *Checker) Every() time.Duration { return max(leastEvery, time.Duration(c.nodes)*perNode) }

// Examine implements doctor.Checker. When the store does not answer it still returns the findings about the node
// itself.
func (c *Checker) Examine(ctx context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	findings, err = c.compare(ctx)
	return append(findings, c.own(c.controller.Status())...), err
}

// compare compares the cluster's blocks. It reads the status before and after, to leave out blocks that the node claims
// or gives back meanwhile.
func (c *Checker) compare(ctx context.Context) (findings []doctor.Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	answer, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, _, err := c.backend.Info.Get(answer); err != nil {
		return nil, err
	}
	before := c.controller.Status()
	var blocks []cluster.Block
	nodes := map[cluster.NodeID]bool{} // with blocks
	for b, err := range c.backend.Blocks.All(ctx, cluster.BlockFilter{}) {
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, cluster.ErrUnavailable)):
			return nil, err
		case err != nil:
			findings = append(findings, doctor.Finding{Kind: findingBlockUnreadable, Subject: "a block", Detail: err.Error()})
		case !b.Deleting:
			blocks = append(blocks, b)
			nodes[b.Owner] = true
		}
	}
	pools := map[string]cluster.Pool{}
	for p, err := range c.backend.Pools.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			findings = append(findings, doctor.Finding{Kind: findingPoolUnreadable, Subject: "pool " + p.Name, Detail: err.Error()})
			err, p.UID = nil, ""
		}
		if err != nil {
			return nil, err
		}
		pools[p.Name] = p
	}
	orphans, err := c.orphans(ctx, blocks)
	if err != nil {
		return nil, err
	}
	after := c.controller.Status()
	c.nodes = len(nodes)
	return slices.Concat(findings, overlaps(blocks), withoutPool(blocks, pools), orphans, c.ofNode(blocks, before, after)), nil
}

func subjectOf(cidr netip.Prefix, pool string) string {
	return fmt.Sprintf("%s of pool %s", cidr, pool)
}

// overlaps finds blocks that overlap.
func overlaps(blocks []cluster.Block) (findings []doctor.Finding) {
	sorted := cluster.SortedBlocks(blocks)
	for i := 1; i < len(sorted); i++ { // a block that overlaps another overlaps the largest before it
		if a, b := sorted[i-1], sorted[i]; a.CIDR.Overlaps(b.CIDR) {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockOverlap, Subject: subjectOf(b.CIDR, b.Pool),
				Detail: fmt.Sprintf("node %s has it, and node %s has %s", b.Owner, a.Owner, subjectOf(a.CIDR, a.Pool)),
			})
			sorted[i] = a // the larger one
		}
	}
	return findings
}

// withoutPool finds blocks of pools that do not exist or were created again.
func withoutPool(blocks []cluster.Block, pools map[string]cluster.Pool) (findings []doctor.Finding) {
	lost := map[string]int{}
	for _, b := range blocks {
		if p, ok := pools[b.Pool]; !ok || p.UID != "" && p.UID != b.PoolUID { // without a UID it cannot be read
			lost[b.Pool]++
		}
	}
	for pool, n := range lost {
		findings = append(findings, doctor.Finding{Kind: findingBlockWithoutPool, Subject: "pool " + pool, Detail: fmt.Sprintf("blocks that it does not have: %d", n)})
	}
	return findings
}

// orphans finds the blocks of nodes without a record. In a recovery there are none, as the record may be back soon.
func (c *Checker) orphans(ctx context.Context, blocks []cluster.Block) (findings []doctor.Finding, err error) {
	there := map[string]bool{}
	for n, err := range c.backend.Nodes.All(ctx) {
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return nil, err
		}
		there[n.ID.RecordName()] = true
	}
	for _, b := range blocks {
		if there[b.Owner.RecordName()] {
			continue
		}
		now, err := c.backend.Blocks.Get(ctx, b.CIDR)
		if err != nil || now.Claim != b.Claim || now.Deleting {
			continue // its node was just deleted
		}
		r, _, err := c.backend.Info.Get(ctx)
		if err != nil || r.Recovery != nil {
			return nil, err
		}
		command := "porin node delete " + b.Owner.Name + " --incarnation " + b.Owner.Key
		if !slices.Contains(r.Removed, b.Owner.Key) {
			command = "if its machine is off: " + command + " --machine-is-off"
		}
		findings = append(findings, doctor.Finding{Kind: findingBlockOrphan, Subject: subjectOf(b.CIDR, b.Pool), Detail: fmt.Sprintf("node %s has it; %s", b.Owner, command)})
	}
	return findings, nil
}

// ofNode finds blocks in this node's name that it knew neither before nor after the list, and blocks that it has owned
// all the time and that the list lacks.
func (c *Checker) ofNode(blocks []cluster.Block, before, after Status) (findings []doctor.Finding) {
	known, owned, listed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, b := range slices.Concat(before.Blocks, after.Blocks) {
		known[b.Claim] = true
	}
	for _, b := range before.Blocks {
		owned[b.Claim] = b.State == blockOwned
	}
	for _, b := range blocks {
		listed[b.Claim] = true
		if after.Connected && b.Owner == after.Node && !known[b.Claim] {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockUnknown, Subject: subjectOf(b.CIDR, b.Pool) + ", claim " + b.Claim, Detail: "the node does not know the claim",
				Repair: c.controller.Reconcile,
			})
		}
	}
	for _, b := range after.Blocks {
		if owned[b.Claim] && b.State == blockOwned && !listed[b.Claim] {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockMissing, Subject: subjectOf(b.CIDR, b.Pool), Detail: "claim " + b.Claim, Repair: c.controller.Reconcile,
			})
		}
	}
	return findings
}

// own returns the findings about the node itself, without the store.
func (c *Checker) own(s Status) (findings []doctor.Finding) {
	for _, b := range s.Blocks {
		if b.State == blockConflict {
			findings = append(findings, doctor.Finding{Kind: findingBlockConflict, Subject: subjectOf(b.CIDR, b.Pool), Detail: conflictText(s.Node, b)})
		}
	}
	if s.Contested != nil {
		findings = append(findings, doctor.Finding{Kind: findingNodeContested, Subject: "node " + s.Node.String(), Detail: s.Contested.Error()})
	}
	if s.Recovery != nil {
		findings = append(findings, doctor.Finding{Kind: findingRecovery, Subject: "recovery since " + s.Recovery.Began.Format(time.DateTime), Detail: s.Recovery.Reason})
	}
	return findings
}

// conflictText says who owns a block in conflict. When it is another incarnation of this node, this machine may have
// lost its folder: then there is a way to get its blocks without ending its pods.
func conflictText(own cluster.NodeID, b OwnBlock) string {
	owner, err := cluster.ParseNodeID(b.OtherOwner)
	switch {
	case err != nil:
		return "its record in the store cannot be read"
	case owner.Name != own.Name:
		return "node " + b.OtherOwner + " owns it"
	}
	return fmt.Sprintf("node %s owns it, another incarnation of this node: it may be this machine before it lost its --store-dir; delete the pods that use the block, "+
		"or run porin ipam recover --begin and then porin node delete %s --incarnation %s --machine-is-off", owner, owner.Name, owner.Key)
}
