// Package embedded keeps the cluster's records of one node, without Kubernetes, in a file.
//
//	ipam/multipool, API, CLI --> [Store.Backend] --> <store-dir>/store.db (bbolt)
//
// A call that changes a record returns when the change is on the disk. The file belongs to one process. A damaged file
// is refused: a new one in its place would give out blocks that are in use.
//
// A key is the folder of the kind and the name of the record. The value is JSON with the version of its form as first
// field. Both are as the first agents wrote them.
package embedded
