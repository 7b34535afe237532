// Package store is the state that the nodes of a cluster share: pools, blocks, nodes and what they publish.
//
//	ipam, node, ... --> [Store] --> checks, bounds, meters --> embedded: <store-dir>/store.db   one node, the default
//	                      |    \                               etcd:     /porin/...             many nodes
//	                      |     '-- watches: the past from a history, or a [Resync]
//	                      '-- leases: renewed until Release or Stop, known as lost in time
//
// Keys are names with slashes, values are small and opaque here; [Encode] and [Decode] give them a version. Each change
// has a revision: a number that grows over the whole store, and that an entry keeps until it changes again.
//
// What holds for every backend, and what storetest holds them to:
//
//   - A change is seen whole or not at all, by everybody in the same order. [Store.Create] and [Store.CompareAndSwap]
//     have one winner.
//   - An error that is not one of a clear no ([ErrNotFound], [ErrExists], [ErrConflict], [ErrTooLarge], [ErrInvalid],
//     [ErrLeaseLost]) leaves open whether the change has happened: its answer may be what was lost. Read again.
//   - No call waits longer than its context, and none longer than some seconds. A store that is away is
//     [ErrUnavailable]; nothing of the agent that is not about the cluster waits for it.
//   - A watch tells every change, in order, once. What it cannot tell any more, as the past is gone or its reader is too
//     slow, it replaces by the whole list. It holds a bounded number of changes. An etcd that was set back, as from a
//     backup, is found out by the first answer from before what was known, that of a lease's renewal too; if it has been
//     overtaken by then, and no election tells, it is not.
//   - Entries of a lease go when the lease ends; its holder knows before that, by the node's own clock.
//
// A Store begins and ends with Start and Stop. Stop ends no lease: what comes back within the lease's time finds its
// entries where they were.
package store
