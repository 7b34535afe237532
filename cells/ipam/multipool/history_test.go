package multipool

import (
	"testing"

	"porin.dev/porin/cells/cluster"
)

// TestHistoryMarkReason compares what a store says with what the node has seen.
func TestHistoryMarkReason(t *testing.T) {
	seen := checkpointFields{Cluster: "c", Recoveries: []string{"r1", "r2"}, Position: cluster.Position{Store: "s", Term: 2, Revision: 10}}
	h := storeHistory{common: &common{checkpoint: &checkpoint{checkpointFields: seen}}}
	ended, standing := []string{"r1", "r2"}, &cluster.Recovery{ID: "r2"}
	for name, c := range map[string]struct {
		info     cluster.ClusterInfo
		position cluster.Position
		want     bool
	}{
		"same":                   {cluster.ClusterInfo{ID: "c", EndedRecoveries: ended}, seen.Position, false},
		"recovery stands":        {cluster.ClusterInfo{ID: "c", Recovery: standing}, seen.Position, false},
		"later":                  {cluster.ClusterInfo{ID: "c", EndedRecoveries: ended}, cluster.Position{Store: "s", Term: 3, Revision: 11}, false},
		"another recovery since": {cluster.ClusterInfo{ID: "c", EndedRecoveries: append(ended, "r3")}, seen.Position, false},
		"earlier revision":       {cluster.ClusterInfo{ID: "c", EndedRecoveries: ended}, cluster.Position{Store: "s", Term: 2, Revision: 9}, true},
		"another store":          {cluster.ClusterInfo{ID: "c", EndedRecoveries: ended}, cluster.Position{Store: "t", Term: 2, Revision: 11}, true},
		"another cluster":        {cluster.ClusterInfo{ID: "d", EndedRecoveries: ended}, seen.Position, true},
		"no record":              {cluster.ClusterInfo{}, seen.Position, true},
		"recovery is gone":       {cluster.ClusterInfo{ID: "c", EndedRecoveries: []string{"r1"}}, seen.Position, true},
		"earlier recovery":       {cluster.ClusterInfo{ID: "c", Recovery: &cluster.Recovery{ID: "r1"}}, seen.Position, true},
	} {
		if got := h.markReason(c.info, c.position); (got != "") != c.want {
			t.Errorf("%s: why the mark is needed: %q, want a reason: %t", name, got, c.want)
		}
	}
}
