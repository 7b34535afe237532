// Package cluster has the records that the nodes of a cluster share, and the interfaces of what keeps them (packages
// embedded and kubernetes/records).
//
//	ipam/multipool, API, CLI --> [Nodes] [Sessions] [Pools] [Blocks] [Info] --> embedded (one node), the Kubernetes API
//	node ----------------------> [NodeNetwork] [EndpointGroup] -----------------^
//
// Each interface asks for no more than the embedded store and Kubernetes custom resources can both give:
//
//   - One record changes at a time. A change has the version that was read as its condition, and a block the claim ID.
//   - A write of equal content may change neither the record nor its version.
//   - Lists come in pages, so what they return need never have been there at one moment.
//   - A watch begins with a [Snapshot], and with another one after each time that it broke. It may skip states in
//     between, and says nothing about the order of changes of two records.
//   - A deletion may take a while. Until it is complete the record is there with Deleting set, and its name is taken.
//   - An error that is none of [ErrNotFound], [ErrExists] and [ErrConflict] leaves open whether the change was made.
//
// The names of records are DNS names of at most 63 characters. clustertest holds every backend to this.
package cluster
