// Package multipool gives this node its blocks of the cluster's address pools.
//
//	ADD --> allocator --nothing is free--> [Controller.Refill] --> waiters --round--> claimer --> the cluster's store
//	            ^                                                                       |
//	            '---- Add, Drain, Remove ---- ownBlocks ---> checkpoint on the disk <---'
//
// An allocation from an own block asks nobody. Everything else is done by one goroutine, which makes rounds:
//
//	membership   connects: reads the record of the cluster (storeHistory), begins the session, registers the node, reconciles its
//	             blocks; while the mark of a recovery stands it records that the node's claims are all in the store
//	poolCreator  creates the default pool
//	reconciler   finds the owners of blocks whose addresses are in use here
//	claimer      claims the blocks that allocations wait for
//	releaser     gives back blocks that nothing uses
//
// They share what the node knows, which only that goroutine uses, and none knows the [Controller]. What administrators
// do with pools and nodes is in cells/cluster/admin, the API for it in cells/cluster/adminapi.
//
// What the package promises:
//
//   - A block has one owner: the incarnation of a node (name, and a key on its disk) whose create succeeded. Each claim
//     has a random ID. A claim that the checkpoint does not have is deleted, unless addresses of it are in use here:
//     then the checkpoint was lost.
//   - A node that does not answer keeps its blocks. An administrator deletes it when its machine is off.
//   - After a restart of the agent the node gives out addresses of the blocks in the checkpoint at once. After a boot
//     of the machine it reconciles them with the store first.
//   - A claim that the store has lost is created again, with its ID, before more of the block is given out. A block
//     that another node owns is a conflict if addresses of it are in use: its pods keep them, and no other pod gets
//     one.
//   - While the mark of a recovery stands no node claims a block. An administrator sets it before the store is
//     restored, or a node that notices that the store was rolled back. Only an administrator takes it away.
//   - Two machines with one key contest it, and give out nothing. A disk that was booted under another machine-id gets
//     a key of its own.
//   - A block is given back when none of its addresses is used, reserved or in quarantine. A node without endpoints
//     keeps no spare block.
//
// Package model searches all orders of these steps. docs/adr/0027, 0049 and 0050 have the reasons and the limits.
package multipool
