// Package ipam gives every attachment of this node its addresses.
//
//	endpointmanager -> [Step] -> [Allocator] -> pool -> addressRange          GET /v1/ipam, metrics
//	                                 ^--------------------------------------- routes, collector
//
// What it promises:
//
//   - An address has at most one owner, from Allocate until Release, and belongs to nobody for the quarantine after
//     that, across restarts of the agent.
//   - It stays its owner's while a step that may still point at it cannot be undone.
//   - Of the free addresses the one that has been free for the longest time is given out, in constant time at any fill.
//   - Never the network, the broadcast or the gateway address of a prefix.
//   - Allocate gives every family or none, and gives the same owner the same addresses again.
//   - An address that another IPAM gave to an endpoint is given to nobody else while that endpoint lives, though it be in
//     a prefix of ours, and is never released as if it were ours.
//   - Release is by owner: it frees all that the owner has and nothing that another one has, however often it is called.
//
// What is allocated is derived from the manager's ledger at each start ([Step.Restore], [Step.Remember]) and stored
// nowhere else. Nothing here touches the kernel or needs root, and [New] works without fx and without the other cells.
package ipam
