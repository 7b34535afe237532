// Package store keeps small values by key, in a file of this node or in etcd. It is what cells/cluster keeps its records in on
// these two; on Kubernetes the records are custom resources, and this package is not used.
//
//	cells/cluster --> [Store] --> checks, bounds, meters --> embedded: <store-dir>/store.db   one node, the default
//	                     |                                   etcd:     /porin/...             many nodes
//	                     '-- watches: a [Resync], then changes from a history
//
// Keys are names with slashes, values are small and opaque here; [Encode] and [Decode] give them a version. A change has the
// value that was read as its condition, never a revision: a store that was restored from a backup gives revisions a second time.
// Each change has a revision all the same, a number that grows over the whole store: [Position] tells the last one.
//
// What holds for every backend, and what storetest holds them to:
//
//   - A change is seen whole or not at all, by everybody in the same order. [Store.Create] and [Store.Replace] have one winner.
//   - An error that is not one of a clear no ([ErrNotFound], [ErrExists], [ErrConflict], [ErrTooLarge], [ErrInvalid]) leaves open
//     whether the change has happened: its answer may be what was lost. Read again.
//   - No call waits longer than its context, and none longer than some seconds. A store that is away is
//     [ErrUnavailable]; nothing of the agent that is not about the cluster waits for it.
//   - A watch tells every change, in order, once. What it cannot tell any more, as the past is gone or its reader is too
//     slow, it replaces by the whole list, which is of one moment. It holds a bounded number of changes. An etcd that was set
//     back, as from a backup, is found out by the first answer from before what was known; if it has been overtaken by then, and
//     no election tells, it is not.
//
// A [Service] begins and ends with Start and Stop.
package store
