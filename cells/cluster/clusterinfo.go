package cluster

import "slices"

// Position is a place in the history of the store. The store was rolled back, for example by a restore from a backup,
// when a later position has another store, a lower term or a lower revision.
type Position struct {
	Store    string `json:"store"`    // identity of the store, as far as the backend has one
	Term     uint64 `json:"term"`     // of the election; 0 where there are none
	Revision uint64 `json:"revision"` // of the last change
}

// Before reports whether p cannot follow seen in the history of one store.
func (p Position) Before(seen Position) bool {
	return p.Store != seen.Store || p.Term < seen.Term || p.Revision < seen.Revision
}

// ClusterInfo is what holds for the cluster as a whole.
type ClusterInfo struct {
	// ID is random. Another ID is another cluster: the store was wiped.
	ID       string    `json:"id"`
	Recovery *Recovery `json:"recovery,omitempty"` // nil when none is under way
	// EndedRecoveries are the IDs of the latest recoveries that were ended, or replaced by a new one after a restore. A
	// node that has seen a recovery which is neither here nor under way knows that the store was rolled back.
	EndedRecoveries []string `json:"endedRecoveries,omitempty"`
	// Removed are the keys of the nodes that were deleted last: other nodes do not take their absence for a loss.
	Removed []string `json:"removed,omitempty"`
	// DefaultPoolRemoved says that an administrator has deleted [DefaultPool]: no agent creates it any more.
	DefaultPoolRemoved bool `json:"defaultPoolRemoved,omitempty"`

	Version Version `json:"-"`
}

// maxRemoved bounds ClusterInfo.Removed: 12 KiB.
const maxRemoved = 1000

// RecordRemovedNode records that a node was deleted.
func (i *ClusterInfo) RecordRemovedNode(id NodeID) {
	i.Removed = appendLast(i.Removed, id.Key, maxRemoved)
}

// appendLast keeps the last ones. It does not change the list that it is given.
func appendLast(list []string, one string, most int) []string {
	list = append(slices.Clone(list), one)
	return list[max(0, len(list)-most):]
}
