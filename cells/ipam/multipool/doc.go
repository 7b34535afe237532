// Package multipool gives this node its blocks of the cluster's address pools.
//
//	ADD --> allocator --nothing is free--> [Controller.Refill] --claim--> cluster.Blocks, and reads pool, node, session, record
//	             ^------- Add, Drain, Remove ------ [Controller] <--watches-- cluster.Pools, Nodes, Sessions, Info
//	                                                     '--> checkpoint on the disk     [PoolAdmin] [NodeAdmin] <-- API, porin
//
// One goroutine makes rounds: it connects (the record of the cluster, the node's record, its session, its blocks), confirms its
// blocks in a recovery, claims what somebody waits for, and gives back what is idle. An allocation from an own block asks nobody.
//
// What it promises:
//
//   - A block has one owner: the incarnation of a node (name, and a key on its disk) whose create succeeded. Each claim has a random
//     ID. A claim that the checkpoint does not have is deleted, unless addresses of it are in use here: then the checkpoint was lost.
//   - A node that does not answer keeps its blocks. An administrator deletes it, with the consent of its agent or when its machine is off.
//   - After a restart of the agent the blocks of the checkpoint are given out from at once; after a boot of the machine when they were
//     compared with the store.
//   - A block whose addresses are in use and that the store has lost is claimed again before more of it is given out. One that another
//     node owns is a conflict: its pods keep their addresses, and nobody else gets one.
//   - When the store has gone back, nobody claims before every node that the store or a checkpoint names has confirmed its blocks.
//   - Two machines with one key give out nothing. A disk that was booted under another machine-id gets a key of its own.
//   - A block is given back when none of its addresses is used, reserved or in quarantine. A node without endpoints keeps no spare block.
//
// Package model searches all orders of these steps. docs/adr/0027 has the reasons and the limits.
package multipool
