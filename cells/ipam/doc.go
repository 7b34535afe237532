// Package ipam gives every attachment of this node its addresses.
//
//	endpointmanager -> [Step] ------------> [allocator.Allocator]          GET /v1/ipam, metrics, doctor
//	POST /v1/ipam ---> routes --------------^    ^     |                      '-- routes, collector, [Checker]
//	cells/ipam/multipool -------------> Pools ---'     '-- Cleanup --> [Cleaner] --> [ConnectionCleaner] conntrack
//	Node at the API server --> [NodeCIDRs] ^           (mode pod-cidr without --ipam-pod-cidr)
//
// What it promises, besides package allocator's promises:
//
//   - An address has at most one owner, from Allocate until Release, and no owner for the quarantine after that, across
//     restarts of the agent. It is not given out before its tracked connections were deleted, or could not be: that is
//     logged and counted. A DEL does not wait for it.
//   - It stays its owner's while a step that may still point at it cannot be undone.
//   - In mode pod-cidr, where prefixes are used up in their order: never the network, the broadcast or the gateway
//     address of one. In mode multi-pool every address of a block is given out.
//   - In mode pod-cidr an address that an interface of the node has is not given out ([NewFollower]); an address that
//     the node gets later stays its owner's, and the doctor finds it.
//   - An address that another IPAM gave to an endpoint is not given out while that endpoint lives, though it be in
//     a prefix of ours, and is never released as if it were ours.
//
// Allocations are derived from the manager's ledger at each start ([Step.Restore], [Step.Remember]) and stored nowhere
// else. Nothing here but [Conntrack], [Kernel] and [NewFollower] touches the kernel or needs root, and [New] works
// without fx and without the other cells.
package ipam
