// Package allocator gives out the addresses of the blocks that this node owns. It is pure: no netlink, no HTTP, no store, no fx.
//
//	[Source.Allocate] -> [Allocator] -> core.existing: the owner has something, or takes over a reservation
//	      |                     '-----> core.allocate -> pool.choose -> freeList.next -> block.nextUnused
//	      '- [Refiller]: nothing is free, and the cluster may have more
//	Release --> uncleaned -> resting -> free      [Pools]: which blocks there are      [Cleanup]: what was released
//
// [Allocator], [Pools] and [Cleanup] lock. The core changes four parts together, of which none knows another: poolSet
// (blocks, free lists, the node's addresses), owners, reservations and cleanups.
//
// What it promises:
//
//   - An address has at most one owner, from Allocate until Release.
//   - Allocate gives one address of every family of the pool, or none, and gives the same owner the same addresses again.
//   - An address of which the owner is gone is given to nobody before its cleanup is done ([Cleanup]) and the pool's quarantine
//     has passed since the release.
//   - Addresses that nobody has had come first, then the one that has been free for the longest time. A block of more than
//     65,536 addresses forgets those that have rested: its memory grows with what is in use, and it is gone through from
//     its beginning to its end before an address is used again.
//   - Allocate and Release take constant time at any fill and for any number of blocks, and make no garbage.
//   - Release is by owner: it frees all that the owner has and nothing that another one has, however often it is called. By
//     sequence number ([Allocator.ReleaseListed]) it never hits the next owner of the same handle.
//   - An address that another IPAM gave to an owner is given to nobody else while that owner lives, and never rests.
//   - A reservation ends by itself, by a clock that nobody sets, or is permanent. A [ReservationStore] keeps it over
//     restarts. A permanent one owns its addresses until it is released: an endpoint with its token uses them, and
//     releases nothing. Nobody gets what is reserved while nothing is given out of its block.
//   - Nothing is given out from a drained block, and no address that is excluded or that the node itself has. A pool may be for
//     pods of some namespaces: nobody else gets an address of it.
package allocator
