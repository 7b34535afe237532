// Package ipam gives every attachment of this node its addresses.
//
//	endpointmanager -> [Step] --> [Allocator] --> pool -> shelf -> block          GET /v1/ipam, metrics
//	POST /v1/ipam ------------> [Reserver] -----^           |                       |
//	cells/ipam/blocks --------> [MultiPool] ----^           |                       '-- routes, collector
//	   ^---- [More]: nothing is free -----------'           '--- [Asker] --> [Namer] conntrack: who names what has rested?
//
// What it promises:
//
//   - An address has at most one owner, from Allocate until Release, and belongs to nobody for the quarantine after
//     that, across restarts of the agent; for longer, 20 minutes at the most, while somebody still names it ([Quiet]). The
//     [Asker] asks ahead, about all addresses at once: an allocation asks only when nothing else is free.
//   - It stays its owner's while a step that may still point at it cannot be undone.
//   - Of the free addresses the one that has been free for the longest time is given out, in constant time at any fill
//     and for any number of blocks, and without garbage.
//   - In mode pod-cidr, where prefixes are used up in their order: never the network, the broadcast or the gateway address
//     of one. In mode multi-pool every address of a block is given out.
//   - Allocate gives every family or none, and gives the same owner the same addresses again.
//   - An address that another IPAM gave to an endpoint is given to nobody else while that endpoint lives, though it be in
//     a prefix of ours, and is never released as if it were ours.
//   - Release is by owner: it frees all that the owner has and nothing that another one has, however often it is called.
//     A handle is network.containerID.ifname ([NewHandle]). By sequence number ([Allocator].ReleaseListed) it never hits the
//     next owner of the same handle.
//   - What is reserved comes back by itself: at its end, by a clock that nobody sets, or with the agent's.
//   - Nothing is given out from a drained block, nor by a node that the store has not heard of for too long; what is in use
//     of it stays, and is in use when its block comes after it.
//
// What is allocated is derived from the manager's ledger at each start ([Step.Restore], [Step.Remember]) and stored
// nowhere else. Nothing here but [Conntrack] touches the kernel or needs root, and [New] works without fx and without the
// other cells.
package ipam
