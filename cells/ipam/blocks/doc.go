// Package blocks has this node own the blocks of the cluster's pools that it needs, and no more. There is no allocator to
// elect: a block is claimed with one compare-and-swap, and what is in an own block is given out without the cluster.
//
//	store                                  this node
//	notices/pools       what there is ---> [Pools]           people write it
//	notices/wants/...   who found none <-> [Manager]         every node follows the notices, and nothing else
//	blocks/POOL/CIDR    who owns it   <----   |    ------> [Local]: add, drain, remove a block
//	nodes/NODE          who lives     <-------'    <------ used, resting, free: how many blocks are needed
//
// A node knows what it owns, and not what others do: so a cluster of five thousand costs each of them no more than one of
// five. It holds as many blocks as the addresses in use and a reserve need. It claims ahead, at a random place; only when it
// meets another node there it reads who owns what, and chooses among what is free. It gives back what is empty after a
// while. When no block is free it says so in a notice, and nodes give up empty blocks, and halves of which nothing is used.
//
// Now and then each node reads everything, the less often the more nodes there are. A node whose lease is gone for the grace
// time loses its blocks, when two such looks agree. A node stops giving out addresses before that time is over for it, and
// reads who owns what when it comes back: so no address has two owners, whoever was cut off from whom.
package blocks
