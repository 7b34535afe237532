package model

// rules are the rules of the design. Each can be switched off alone. TestRulesNeeded has a counterexample for each but
// readNodeRecord, holdDeletes and recordLast: since a node is only deleted when its machine is off, the searches find
// none for these.
type rules struct {
	createMakesOwner   bool // only a successful create makes an owner
	deleteByClaim      bool // the claim ID is the precondition of a delete; off: there is none
	noRevision         bool // the precondition is not the record's revision, which repeats after a restore
	randomClaims       bool // each claim has a new random ID
	releaseOnDiskFirst bool // a give-back is in the checkpoint before the delete is sent
	claimOnDiskFirst   bool // a claim is in the checkpoint before an address is given out
	positionOnDisk     bool // the store's position is in the checkpoint
	readPool           bool // after a create: read the pool
	readNodeRecord     bool // after a create: read the own node record
	readClusterRecord  bool // after a create: read the cluster record and the store's position
	durableMark        bool // recovery is a mark in the cluster record; off: each node judges for itself
	noTimeLimit        bool // recovery does not end before every node has written its claims
	conflictUnsettled  bool // a node with a conflict has not written its claims
	holdDeletes        bool // in a recovery no node gives blocks back, or deletes the blocks of others
	incarnations       bool // another machine with the same name is another owner
	recordLast         bool // node delete: the node's record goes after its blocks
	sessionGuards      bool // node delete --machine-is-off: marks by compare-and-swap on the session that it read
	createAgain        bool // a claim that is missing in the store is created again before its block gives out addresses
	conflictStops      bool // a block in use that another node owns gives out no address
	compareAfterBoot   bool // after a boot a comparison precedes the first address
	refuseOverlap      bool // a pool is not accepted while a block of an older pool UID overlaps

	// Rules that the model needed and the issue does not state.
	blocksBeforeNodes bool // who deletes a block whose owner has no record has read the block first, then the owner's record
	poolUnsettled     bool // a node with a block in use of a pool that is not accepted has not written its claims; unused, it is given back
	restoreVoids      bool // after a boot the checkpoint is void if the store was rolled back since it was written, or is in recovery
	waitForAll        bool // the administrator waits for nodes that the store does not name, too
	deletionVoids     bool // after a boot the checkpoint is void if the node's record is gone
	deleteOwnUnknown  bool // also in recovery a node deletes a record in its own name that it does not know

	// A stronger rule, which is off.
	renewInUse bool // a record that is not in the checkpoint is never adopted; if the block is in use, it is claimed again
}

// designRules returns the rules of the issue, with the rules that the model needed.
func designRules() rules {
	return rules{
		createMakesOwner: true, deleteByClaim: true, noRevision: true, randomClaims: true,
		releaseOnDiskFirst: true, claimOnDiskFirst: true, positionOnDisk: true,
		readPool: true, readNodeRecord: true, readClusterRecord: true,
		durableMark: true, noTimeLimit: true, conflictUnsettled: true, holdDeletes: true,
		incarnations: true, recordLast: true, sessionGuards: true,
		createAgain: true, conflictStops: true, compareAfterBoot: true, refuseOverlap: true,
		blocksBeforeNodes: true, poolUnsettled: true, restoreVoids: true, waitForAll: true, deleteOwnUnknown: true, deletionVoids: true,
	}
}

// bounds say what can happen, and how often.
type bounds struct {
	nodes  int // 2 or 3
	claims int // how many claims of one node can exist at a time
	late   int // the index of a node that is not there at the beginning; 0: all are

	restarts, reboots, removals uint8

	copies       bool // a delete can be executed more than once: the client sent it again
	createCopies bool // so can a create, with the same claim ID
	orphans      bool // nodes delete blocks whose owner has no record
	pools        bool // the pool is deleted and created again with another block size
	poolLost     bool // the pool's record is removed without the checks
	restore      bool // the store is backed up once and restored once
	replaced     bool // the third node has the name of the first
	known        bool // all nodes have registered, and have read each other's record, at the beginning
	unmarked     bool // the administrator does not set the mark: only nodes do
	lateRequests bool // requests that were sent before the restore arrive after it
	bumped       bool // the restored store's position tells nothing: only marks and own records do
	force        bool // the administrator ends the recovery although nodes have not written their claims
}
