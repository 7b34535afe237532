// Package admin has what administrators do with the records of the cluster: [Pools] are created, changed and deleted,
// [Nodes] listed, deleted and reset, and a recovery is ended. The agent's API calls it.
package admin
