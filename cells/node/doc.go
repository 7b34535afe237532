// Package node makes this node a member of the network of all nodes: it tells the others how its pods are reached, and
// keeps the routes to theirs.
//
//	addresses of the node, blocks, health endpoint --> [Self] --> publisher --> own record --.
//	                                                                                         |  the cluster's store
//	kernel's routes <-- router <-- [View] <-- [Peers] <-- the records of all nodes ----------'
//
// Each arrow is a task that brings the right side up to date with the left one, and runs again when either has changed.
// Nothing that an endpoint waits for depends on them.
//
// What the package promises:
//
//   - A node whose agent is silent keeps its routes. A record that the store has lost keeps them, too, until an
//     administrator deletes the node; after a restart of this agent, for [keepTime]. Agents write a lost record of
//     their own again. An agent that was away when a node was deleted, and knows it from the [cache.Cache], removes its
//     routes when it starts.
//   - A block has routes to one node. When records disagree, the store's claim of the block counts, and without one who
//     had it first.
//   - No route leads to a block that has an address of a node, or that overlaps this node's blocks: a record cannot
//     take them over.
//   - Routes of others are left alone. Those of this package have the protocol [RouteProtocol].
//
// A node's ID is the ID of its claims of blocks. A node without claims (its prefixes come with its name, from a flag)
// has an ID made of its name: a machine that replaces it writes the same record.
package node
