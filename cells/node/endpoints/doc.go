// Package endpoints has nodes know each other's endpoints, so that policies can select them.
//
//	endpointmanager --> publisher --> groups of at most 8 endpoints  --> the cluster's store
//	policy <-- follower <-- the groups of all nodes <------------------------'
//
// The first change of a node's endpoints is written at once, further ones together once a second. A group has the
// labels that its endpoints share only once; a change of one pod writes and sends one group.
//
// The follower believes a node of addresses in its own blocks alone (see package node), so no node can take over the
// identity of another one's pods. An address in a block that no group has is of a pod that nothing is known of:
// model.Unmanaged.
//
// Groups that are missing in the list with which a watch begins, as after the loss of the store, count for [holdTime],
// or as long as the record of their node is missing, too: the running agents write them again. Their addresses that
// another group of the node has do not count. Two groups have an address while a pod moves from one to the other.
package endpoints
