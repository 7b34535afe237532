// Package cache keeps on the node's disk what the store has told of other nodes, for a start of the agent while the
// store does not answer.
//
//	node.Peers, endpoints.Follower --Note--> pending --every [interval], and at the end--> peers.db
//	node.Peers, endpoints.Follower <---- Networks, Endpoints ---- peers.db, when the store does not answer after a start
//	the store's watch <---- ResumeNetworks, ResumeEndpoints ---- peers.db, when it answers
//
// Its content may be out of date by as long as no agent of this node has followed the store, and [interval]. It is a
// help and nothing else: a file that is damaged, too large or of another form is replaced, and no error of it stops
// anything.
//
// It is a bbolt file, as only changes are written: at 5,000 nodes with 110 pods it has 70,000 groups, and a hundred
// change in a second.
package cache
