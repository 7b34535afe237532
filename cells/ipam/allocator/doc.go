// Package allocator gives out the addresses of the blocks that this node owns. It is pure: no netlink, no HTTP, no
// store, no fx.
//
//	[Source.Allocate] -> [Allocator] -> core.existing: the owner has something, or takes over a reservation
//	      |                     '-----> core.allocate -> pool.choose -> freeList.next -> block.nextUnused
//	      '- [Refiller]: nothing is free, and the cluster may have more
//	Release --> uncleaned -> resting -> free      [Pools]: the blocks      [Cleanup]: released addresses
//
// [Allocator], [Pools] and [Cleanup] lock. The core changes four parts together, which do not know each other: poolSet
// (blocks, free lists, the node's addresses), owners, reservations and cleanups.
//
// What it promises:
//
//   - An address has at most one owner, from Allocate until Release.
//   - Allocate gives one address of every family of the pool, or none, and gives the same owner the same addresses
//     again.
//   - An address without its owner is not given out before its cleanup is done ([Cleanup]) and the pool's quarantine
//     has passed since the release.
//   - Unused addresses come first, then the address that has been free for the longest time. A block of more than
//     65,536 addresses forgets rested ones: its memory grows with the addresses in use, and it is gone through from
//     its beginning to its end before an address is used again.
//   - Allocate and Release take constant time at any fill and for any number of blocks, and make no garbage.
//   - Release is by owner: it frees all that the owner has and nothing that another one has, however often it is
//     called. By sequence number ([Allocator.ReleaseListed]) it never hits the next owner of the same handle.
//   - An address that another IPAM gave to an owner is not given out while that owner lives, and never rests.
//   - A reservation ends by itself, by the monotonic clock, or is permanent. A [ReservationStore] keeps it over
//     restarts. A permanent one owns its addresses until it is released: an endpoint with its token uses them, and
//     releases nothing. Nobody gets what is reserved while nothing is given out of its block.
//   - Nothing is given out from a drained block, and no address that is excluded or that the node itself has. A pool
//     may be for pods of some namespaces: no other pod gets an address of it.
package allocator
