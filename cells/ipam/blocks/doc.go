// Package blocks has this node own the blocks of the cluster's pools that it needs, and no more. There is no allocator to
// elect: a block is claimed with one compare-and-swap, and what is in an own block is given out without the cluster.
//
//	store                                  this node
//	pools               what there is ---> [Pools]           people write it
//	blocks/POOL/CIDR    who owns it   <--> [Manager] ------> [Local]: add, drain, remove a block
//	nodes/NODE          who lives     <---   |                  '--> used, resting, free: how many blocks are needed
//	wants/...           who found none <-----'
//
// A node holds as many blocks as the addresses in use and a reserve need. It claims ahead, at a random place, so that many
// nodes that start together do not meet; it gives back what is empty after a while. When no block is free, nodes give up
// empty ones, and halves of which nothing is used. A node whose lease is gone for the grace time loses its blocks, when two
// looks agree. A node stops giving out addresses before that time is over for it, and reads who owns what when it comes
// back: so no address has two owners, whoever was cut off from whom.
package blocks
