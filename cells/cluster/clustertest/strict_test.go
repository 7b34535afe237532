package clustertest_test

import (
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestStrict(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend {
		s := clustertest.NewStrict(1)
		t.Cleanup(s.Close)
		return s.Backend()
	})
}
