// Package admin has what administrators do with the records of the cluster: [Pools] are created, changed and deleted,
// [Nodes] listed, deleted and reset, and excluded from a recovery. The agent's API calls it. Only the deletion of a
// node whose machine is not said to be off needs that node's agent, which answers in the node's record.
package admin
