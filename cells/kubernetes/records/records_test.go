package records_test

import (
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestConformance(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend {
		_, b := recordstest.Start(t)
		return b
	})
}
