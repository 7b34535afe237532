package multipool

import (
	"testing"

	"porin.dev/porin/cells/cluster"
)

// TestHistoryRolledBack compares what a store says with what the node has seen.
func TestHistoryRolledBack(t *testing.T) {
	seen := checkpointFields{Cluster: "c", Epoch: 3, Position: cluster.Position{Store: "s", Term: 2, Revision: 10}}
	h := storeHistory{checkpoint: &checkpoint{checkpointFields: seen}}
	for name, c := range map[string]struct {
		info     cluster.ClusterInfo
		position cluster.Position
		want     bool
	}{
		"same":                          {cluster.ClusterInfo{ID: "c", Epoch: 3}, seen.Position, false},
		"later":                         {cluster.ClusterInfo{ID: "c", Epoch: 3}, cluster.Position{Store: "s", Term: 3, Revision: 11}, false},
		"earlier revision":              {cluster.ClusterInfo{ID: "c", Epoch: 3}, cluster.Position{Store: "s", Term: 2, Revision: 9}, true},
		"another store":                 {cluster.ClusterInfo{ID: "c", Epoch: 3}, cluster.Position{Store: "t", Term: 2, Revision: 11}, true},
		"another cluster":               {cluster.ClusterInfo{ID: "d", Epoch: 3}, seen.Position, true},
		"earlier epoch":                 {cluster.ClusterInfo{ID: "c", Epoch: 2}, seen.Position, true},
		"a recovery has begun for that": {cluster.ClusterInfo{ID: "c", Epoch: 4}, cluster.Position{Store: "t", Term: 1, Revision: 1}, false},
	} {
		if got := h.isRolledBack(c.info, c.position); got != c.want {
			t.Errorf("%s: rolled back %t, want %t", name, got, c.want)
		}
	}
}
