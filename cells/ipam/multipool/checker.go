package multipool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
)

// The kinds of disagreement, by the names that programs know them by.
const (
	findingBlockUnreadable  = "block-unreadable"
	findingPoolUnreadable   = "pool-unreadable"
	findingBlockOverlap     = "block-overlap"
	findingBlockWithoutPool = "block-without-pool"
	findingBlockUnknown     = "block-unknown"
	findingBlockMissing     = "block-missing"
	findingBlockConflict    = "block-conflict"
	findingNodeCloned       = "node-cloned"
	findingRecovery         = "store-recovery"
)

// Checker compares the blocks of the cluster with each other, with the pools and with what this node holds. Each examination lists all
// blocks, so an agent by itself seldom makes one.
type Checker struct {
	backend    cluster.Backend
	controller *Controller
	nodes      int // that had blocks at the last examination
	compared   []doctor.Compared
}

var _ interface {
	doctor.Costly
	doctor.Counter
} = (*Checker)(nil)

// NewChecker returns the checker of a node.
func NewChecker(b cluster.Backend, c *Controller) *Checker {
	return &Checker{backend: b, controller: c}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "multipool" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	kinds := []doctor.Kind{
		{Name: findingBlockUnreadable, Meaning: "a block in the store cannot be read: nobody claims it", Repair: "upgrade the agents if a later version has written it; else delete the record"},
		{Name: findingPoolUnreadable, Meaning: "a pool in the store cannot be read: nobody claims blocks of it", Repair: "upgrade the agents if a later version has written it; else put the pool again"},
		{Name: findingBlockOverlap, Meaning: "two blocks have addresses in common", Repair: "delete the pods that use one of the two: its node gives it back"},
		{Name: findingBlockWithoutPool, Meaning: "nodes have blocks of a pool that does not exist or has changed", Repair: "create the pool again, or delete the pods that use its addresses: then the nodes give the blocks back"},
		{Name: findingBlockUnknown, Meaning: "a block is this node's by the store, and the node does not know it", Repair: "it is deleted"},
		{Name: findingBlockMissing, Meaning: "this node has a block that the store does not have", Repair: "it is compared with the store; if addresses of it are in use it is claimed again"},
		{Name: findingBlockConflict, Meaning: "addresses of a block are in use here, and another node owns it: nothing more of it is given out", Repair: "delete the pods that use its addresses on one of the two nodes"},
		{Name: findingNodeCloned, Meaning: "another machine has this node's key: neither gives out addresses", Repair: "on the copy, remove the file node-key in its --store-dir and restart its agent; then run porin node reset"},
		{Name: findingRecovery, Meaning: "the store has gone back, and nobody claims blocks before every node has confirmed its own", Repair: "see porin ipam recover"},
	}
	for i := range kinds {
		kinds[i].About = doctor.Addresses
	}
	return kinds
}

const (
	leastEvery  = 30 * time.Minute // between two examinations that nobody has asked for
	perNode     = 2 * time.Second  // longer for each node: all agents together examine about every other second
	examineTime = 10 * time.Second // that the store may take for everything
	answerTime  = time.Second      // that it may take for the first answer: who asks the doctor does not wait for a store that hangs
)

// Every implements doctor.Costly.
func (c *Checker) Every() time.Duration { return max(leastEvery, time.Duration(c.nodes)*perNode) }

// Compared implements doctor.Counter.
func (c *Checker) Compared() []doctor.Compared { return c.compared }

// Examine implements doctor.Checker. What the node claims or gives back meanwhile is left out: it asks the node before and after.
func (c *Checker) Examine(ctx context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	if err := c.answers(ctx); err != nil {
		return nil, err
	}
	before := c.controller.Status()
	blocks, unreadable, err := c.blocks(ctx)
	if err != nil {
		return nil, err
	}
	pools := map[string]cluster.Pool{}
	for p, err := range c.backend.Pools.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			unreadable = append(unreadable, doctor.Finding{Kind: findingPoolUnreadable, Subject: "pool " + p.Name, Detail: err.Error()})
			err, p.UID = nil, ""
		}
		if err != nil {
			return nil, err
		}
		pools[p.Name] = p
	}
	after := c.controller.Status()
	nodes, own := map[cluster.NodeID]bool{}, 0
	for _, b := range blocks {
		nodes[b.Owner] = true
		if b.Owner == after.Node {
			own++
		}
	}
	c.nodes = len(nodes)
	c.compared = []doctor.Compared{{What: "blocks of the cluster", Count: len(blocks)}, {What: "of them this node's", Count: own}}
	findings = append(unreadable, overlaps(blocks)...)
	findings = append(findings, withoutPool(blocks, pools)...)
	findings = append(findings, c.unknown(blocks, before, after)...)
	findings = append(findings, c.missing(blocks, before, after)...)
	return append(findings, c.own(after)...), nil
}

func (c *Checker) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, _, err := c.backend.Info.Get(ctx)
	return err
}

func (c *Checker) blocks(ctx context.Context) (blocks []cluster.Block, unreadable []doctor.Finding, err error) {
	for b, err := range c.backend.Blocks.All(ctx, cluster.BlockFilter{}) {
		switch {
		case err != nil && ctx.Err() != nil, err != nil && isUnavailable(err):
			return nil, nil, err
		case err != nil:
			unreadable = append(unreadable, doctor.Finding{Kind: findingBlockUnreadable, Subject: "a block", Detail: err.Error()})
		case !b.Deleting:
			blocks = append(blocks, b)
		}
	}
	return blocks, unreadable, nil
}

func isUnavailable(err error) bool { return errors.Is(err, cluster.ErrUnavailable) }

func sortedByAddress(blocks []cluster.Block) []cluster.Block {
	return slices.SortedFunc(slices.Values(blocks), func(a, b cluster.Block) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), cmp.Compare(a.CIDR.Bits(), b.CIDR.Bits()))
	})
}

func subjectOf(b cluster.Block) string { return fmt.Sprintf("%s of pool %s", b.CIDR, b.Pool) }

// overlaps expects the blocks in no order.
func overlaps(blocks []cluster.Block) (findings []doctor.Finding) {
	sorted := sortedByAddress(blocks)
	for i := 1; i < len(sorted); i++ { // one that overlaps another overlaps the largest before it
		if a, b := sorted[i-1], sorted[i]; a.CIDR.Overlaps(b.CIDR) {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockOverlap, Subject: subjectOf(b), Detail: fmt.Sprintf("node %s has it, and node %s has %s", b.Owner, a.Owner, subjectOf(a)),
			})
			sorted[i] = a // the larger one
		}
	}
	return findings
}

func withoutPool(blocks []cluster.Block, pools map[string]cluster.Pool) (findings []doctor.Finding) {
	counts := map[string]int{}
	for _, b := range blocks {
		if p, ok := pools[b.Pool]; ok && p.UID == "" { // which cannot be read
			continue
		} else if !ok || !p.HasBlock(b.CIDR) {
			counts[b.Pool]++
		}
	}
	for pool, n := range counts {
		findings = append(findings, doctor.Finding{Kind: findingBlockWithoutPool, Subject: "pool " + pool, Detail: fmt.Sprintf("blocks that it does not have: %d", n)})
	}
	return findings
}

// unknown are the blocks in this node's name that it knew neither before nor after the list.
func (c *Checker) unknown(blocks []cluster.Block, before, after Status) (findings []doctor.Finding) {
	if !after.Connected {
		return nil
	}
	known := map[string]bool{}
	for _, b := range append(before.Blocks, after.Blocks...) {
		known[b.Claim] = true
	}
	for _, b := range blocks {
		if b.Owner == after.Node && !known[b.Claim] {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockUnknown, Subject: subjectOf(b) + ", claim " + b.Claim, Detail: "the node does not know the claim",
				Repair: c.controller.Compare,
			})
		}
	}
	return findings
}

// missing are the blocks that the node has owned all the time and that the store does not have.
func (c *Checker) missing(blocks []cluster.Block, before, after Status) (findings []doctor.Finding) {
	there := map[string]bool{}
	for _, b := range blocks {
		there[b.Claim] = true
	}
	owned := map[string]bool{}
	for _, b := range before.Blocks {
		owned[b.Claim] = b.State == string(blockOwned)
	}
	for _, b := range after.Blocks {
		if owned[b.Claim] && b.State == string(blockOwned) && !there[b.Claim] {
			findings = append(findings, doctor.Finding{
				Kind: findingBlockMissing, Subject: fmt.Sprintf("%s of pool %s", b.CIDR, b.Pool), Detail: "claim " + b.Claim, Repair: c.controller.Compare,
			})
		}
	}
	return findings
}

// own is what the node itself reports.
func (c *Checker) own(s Status) (findings []doctor.Finding) {
	for _, b := range s.Blocks {
		if b.State == string(blockConflict) {
			findings = append(findings, doctor.Finding{Kind: findingBlockConflict, Subject: fmt.Sprintf("%s of pool %s", b.CIDR, b.Pool), Detail: "node " + b.Rival + " owns it"})
		}
	}
	if s.Cloned != nil {
		findings = append(findings, doctor.Finding{Kind: findingNodeCloned, Subject: "node " + s.Node.String(), Detail: s.Cloned.Error()})
	}
	if s.Recovery != nil {
		findings = append(findings, doctor.Finding{Kind: findingRecovery, Subject: fmt.Sprintf("epoch %d", s.Epoch), Detail: s.Recovery.Reason})
	}
	return findings
}
