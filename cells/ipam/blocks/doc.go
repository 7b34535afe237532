// Package blocks has this node own the blocks of the cluster's pools that it needs, and no more. There is no allocator to
// elect: a block is claimed with one compare-and-swap, and what is in an own block is given out without the cluster.
//
//	store                                  this node
//	notices/pools       what there is ---> [Pools]           people write it
//	notices/wants/...   who found none <-> [Manager]         every node follows the notices, and nothing else
//	blocks/POOL/...     who owns it   <----   |    ------> [Local]: add, drain, remove a block
//	nodes/NODE          who lives     <-------'    <------ used, resting, free: how many blocks are needed
//
// A node knows what it owns, and not what others do: so a cluster of five thousand costs each of them no more than one of
// five. It holds as many blocks as the addresses in use and a reserve need. It claims ahead, at a random place; only when it
// meets another node there it reads who owns what around, and chooses among what is free. It gives back what is empty after a
// while. When no block is free it says so in a notice, and nodes give up empty blocks, and halves of which nothing is used.
//
// Now and then each node reads everything, the less often the more nodes there are. A node whose lease is gone for the grace
// time loses its blocks, when two such looks agree. A node stops giving out addresses before that time is over for it, and
// reads who owns what when it comes back: so no address has two owners, whoever was cut off from whom.
//
// A node is one agent, and its next lives: what says that it lives says which one, by the memo file and the boot. Who finds
// another agent there gives out nothing, says so, and waits: for the lease's time if that was the node before a boot, and for
// the grace time if it was there for longer than that.
//
// A store that is restored from a backup, or begun anew, has lost what nodes own. Each finds out by its next sign of life, ten
// seconds at most, or when the store's past is shorter than it was. It first claims again what it has in use, and nothing new
// for a lease's time, in which the others do so, too. What another one was given meanwhile stays with that one: the node says
// so, and gives nothing more out of it. A node that has never seen the store before cannot know, and may be that other one.
//
// What cannot be is not acted upon: a block with a part outside of it or with two owners is nobody's, and of pools that cannot
// be read those hold that were there before.
package blocks
