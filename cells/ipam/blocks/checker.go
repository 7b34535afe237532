package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/store"
)

// The kinds of disagreement, by the names that programs know them by.
const (
	blockUnreadable = "block-unreadable"
	blockOverlap    = "block-overlap"
	blockPoolless   = "block-poolless"
	blockNotHeld    = "block-not-held"
	blockNotOwned   = "block-not-owned"
	nodeNameTaken   = "node-name-taken"
)

// Holder is what a [Checker] needs of a [Manager].
type Holder interface {
	// Held is nil before it knows.
	Held() []Part
	Recheck(ctx context.Context) error
	More(ctx context.Context, pool string, want ...netip.Addr) error
	// NameTaken is an [ErrNameTaken], or nil.
	NameTaken() error
}

// Given is what a [Checker] needs of a [Local].
type Given interface {
	Usage(pool string) []Usage
	Wanted() []string
}

// Checker compares the blocks of the cluster's store with each other, with the pools, and with what this node gives out
// from: the blocks' doctor.Checker. Each look reads all blocks, so an agent on its own seldom has one.
type Checker struct {
	cfg      Config
	store    store.Store
	holder   Holder
	given    Given
	owners   int // nodes that had blocks at the last look
	compared []doctor.Compared
}

var _ interface {
	doctor.Costly
	doctor.Counter
} = (*Checker)(nil)

// NewChecker returns the checker of a node.
func NewChecker(cfg Config, s store.Store, h Holder, g Given) *Checker {
	return &Checker{cfg: cfg, store: s, holder: h, given: g}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "blocks" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	kinds := []doctor.Kind{
		{Name: blockUnreadable, Meaning: "a block or the pools in the store cannot be read: nobody claims there", Repair: "upgrade the agents if a later version has written it; else correct or delete the entry"},
		{Name: blockOverlap, Meaning: "addresses are in two blocks of the store, or of two nodes in one", Repair: "delete the containers that one of the two has there, and then its entry"},
		{Name: blockPoolless, Meaning: "nodes have blocks of a pool that does not exist", Repair: "make the pool again, or delete the containers that have addresses of it: then the nodes give the blocks back"},
		{Name: blockNotHeld, Meaning: "a block is this node's for the store, and the node does not know it", Repair: "it is read anew, and given out from or given back"},
		{Name: blockNotOwned, Meaning: "this node gives out from a block, or has addresses of it in use, that is another's or nobody's for the store", Repair: "nothing more is given out from it; if addresses of it are in use and it is nobody's, it is claimed again"},
		{Name: nodeNameTaken, Meaning: "another agent has this node's name: this one gives out no address", Repair: "give each agent a --node-name of its own; what a boot has left is over in half a minute"},
	}
	for i := range kinds {
		kinds[i].About = doctor.Addresses
	}
	return kinds
}

// leastEvery is the least time between two looks that nobody has asked for.
const leastEvery = 30 * time.Minute

// Every implements doctor.Costly: all nodes together look as often as a [Manager] does by itself.
func (c *Checker) Every() time.Duration {
	return max(leastEvery, time.Duration(c.owners)*c.cfg.Interval/5)
}

// Compared implements doctor.Counter.
func (c *Checker) Compared() []doctor.Compared { return c.compared }

// lookTime bounds how long the store may take for everything, and answerTime how long for one answer: who asks the doctor
// does not wait for a store that hangs.
const (
	lookTime   = 10 * time.Second
	answerTime = time.Second
)

// answers is nil when the store answers.
func (c *Checker) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := c.store.Get(ctx, poolsKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// Examine implements doctor.Checker. What this node is about to claim or to give up it sees as one or the other: it asks the
// node before and after the store.
func (c *Checker) Examine(ctx context.Context, only string) ([]doctor.Finding, error) {
	if only != "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := c.answers(ctx); err != nil {
		return nil, err
	}
	before := c.mine()
	a, err := readAtlas(ctx, c.store)
	if err != nil {
		return nil, err
	}
	after := c.mine()
	own := a.of(c.cfg.Node)
	c.owners, c.compared = a.owners(), []doctor.Compared{{What: "blocks of the cluster", Count: len(a.parts)}, {What: "of them this node's", Count: len(own)}}
	return slices.Concat(c.nameTaken(), a.unreadableFindings(), a.overlaps(), a.poolless(), c.notHeld(own, before, after), c.notOwned(a, before, after)), nil
}
