package model

import "math/bits"

// The names of the nodes. With bounds.replaced the third is a new machine that has the name of the first.
const (
	nodeA = iota
	nodeB
	nodeC
	maxNodes
)

// The two blocks of the model. They overlap: the second is cut from the same range by a pool of another block size.
const (
	firstBlock = iota
	secondBlock
	maxBlocks
)

// A claim stands for a claim ID, and for the node that drew it. A number is used again only when no record, message,
// memory or disk has it any more, so the number of claims over time has no bound.
type claim int8

const (
	noClaim      claim = 0
	claimsOfNode       = 3
	maxClaims          = maxNodes * claimsOfNode
)

func (c claim) node() int   { return int(c-1) / claimsOfNode }
func (c claim) bit() uint16 { return 1 << c >> 1 }

// state is everything that the future depends on. It is comparable, so that a map can tell which ones were seen.
type state struct {
	store    store
	backup   store
	backedUp bool
	restored bool
	// announced is true when the administrator has set the mark before the restore.
	announced bool

	creates uint16 // requests that the store has not executed yet, a bit for each claim
	deletes uint16
	second  uint16 // the claims that are for the second block
	lost    uint16 // the claims whose records were created after the backup and lost by the restore
	again   uint16 // the claims whose records were created after the restore

	nodes   [maxNodes]node
	removal removal // how far `porin node delete A` is
	ever    uint8   // the nodes that ever registered: no program knows this, an administrator does
	spent   spent
}

// store is what the cluster's store holds, and so what a backup holds.
type store struct {
	blocks    [maxBlocks]claim // the claim in the block's record
	nodes     uint8            // the node records, a bit for each node
	releasing uint8            // the node records that are marked: the machine is off
	pool      poolState
	recovery  recoveryState // the mark in the cluster record
	written   uint8         // the nodes that have written their claims since it began
}

type recoveryState uint8

const (
	recoveryNever recoveryState = iota
	recoveryBegun
	recoveryEnded
)

type poolState uint8

const (
	poolAccepted    poolState = iota // the first pool
	poolDeleting                     // marked
	poolChecked                      // marked, and no block was found
	poolGone                         //
	newPoolPending                   // the second pool, same range, another block size
	newPoolListed                    // no overlap was found
	newPoolAccepted                  //
)

type removal uint8

const (
	removalNone   removal = iota
	removalBegun          // --machine-is-off: the command has read the node's record
	removalMarked         // the record is marked
	removalEmpty          // the command found no block of the node
)

// node is one incarnation of a node: one machine with one disk.
type node struct {
	life    life
	inUse   uint8            // addresses of these blocks are in use by pods
	memory  [maxBlocks]claim // the blocks that the agent gives addresses from
	disk    [maxBlocks]claim // the blocks in the checkpoint
	pending claim            // the claim under way
	stage   stage            // and how far it is
	check   check            // what precedes the next address
	leaving bool             // this process knows that its node is being deleted
	waits   bool             // without the mark: this node believes that the store is in recovery
	seen    seen
	// recovery is the state of the recovery in the checkpoint.
	recovery recoveryState
	missing  uint8 // without blocksBeforeNodes: the nodes that had no record when this one listed the records
}

type life uint8

const (
	absent life = iota
	machineOff
	agentDown // pods run on
	up
)

// check is the comparison that is due before an address is given out.
type check uint8

const (
	checked check = iota
	checkDue
	checkAfterBoot
)

type stage uint8

const (
	idle stage = iota
	waitsForAnswer
	readsPool
	readsNodeRecord
	readsClusterRecord
)

// seen is the store's position in the checkpoint.
type seen uint8

const (
	seenNothing seen = iota
	seenBeforeRestore
	seenAfterRestore
)

// spent counts the events that are bounded by number.
type spent struct{ restarts, reboots, removals uint8 }

func has(set uint8, i int) bool { return set&(1<<i) != 0 }

func (s *state) blockOf(c claim) int {
	if s.second&c.bit() != 0 {
		return secondBlock
	}
	return firstBlock
}

// position is what a node that reads the store now has seen.
func (s *state) position() seen {
	if s.restored {
		return seenAfterRestore
	}
	return seenBeforeRestore
}

// referenced returns the claims that exist anywhere.
func (s *state) referenced() uint16 {
	all := s.creates | s.deletes
	for b := range maxBlocks {
		all |= s.store.blocks[b].bit() | s.backup.blocks[b].bit()
		for i := range s.nodes {
			all |= s.nodes[i].memory[b].bit() | s.nodes[i].disk[b].bit()
		}
	}
	for i := range s.nodes {
		all |= s.nodes[i].pending.bit()
	}
	return all
}

// tidy gives states that differ in nothing the same value.
func (s *state) tidy() {
	if s.second|s.lost|s.again != 0 {
		existing := s.referenced()
		s.second &= existing
		s.lost &= existing
		s.again &= existing
	}
}

// twoUsers reports whether addresses are in use on two machines: the blocks overlap, so any two blocks count.
func (s *state) twoUsers() bool {
	users := 0
	for i := range s.nodes {
		users += min(1, bits.OnesCount8(s.nodes[i].inUse))
	}
	return users > 1
}
