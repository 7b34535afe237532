// Package store keeps small values by key, in a file of this node or in etcd. It is what cells/cluster keeps its records in on
// these two. A backend on custom resources of Kubernetes, which needs no store, is to come.
//
//	cells/cluster --> [Store] --> checks, bounds, meters --> embedded: <store-dir>/store.db   one node, the default
//	                     |                                   etcd:     /porin/...             many nodes
//	                     '-- watches: a [Resync], then changes from a history
//
// Keys are names with slashes, values are small and opaque here; [Encode] and [Decode] give them a version. A change has the
// value that was read as its condition, never a revision: a store that was restored from a backup gives revisions a second time.
// Each change has a revision all the same, a number that grows over the whole store: [Position] has the last one.
//
// What holds for every backend, and what storetest holds them to:
//
//   - A change is seen whole or not at all, by everybody in the same order. [Store.Create] and [Store.Replace] have one winner.
//   - An error that is not one of a clear no ([ErrNotFound], [ErrExists], [ErrConflict], [ErrTooLarge], [ErrInvalid]) leaves open
//     whether the change has happened: its answer may be what was lost. Read again.
//   - No call waits longer than its context, and none longer than some seconds. A store that is away is
//     [ErrUnavailable]; nothing of the agent that is not about the cluster waits for it.
//   - A watch sends every change, in order, once. What it cannot send any more, as the past is gone or its reader is too
//     slow, it replaces by the whole list, which is of one moment. It holds a bounded number of changes. An etcd that was set
//     back, as from a backup, is found out by the first answer from before what was known; if it has been overtaken by then, and
//     no election tells, it is not.
//
// A [Service] begins and ends with Start and Stop.
package store
