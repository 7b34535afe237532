package cluster_test

import (
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestEmbedded(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend { return cluster.OnStore(storetest.New(t)) })
}

func TestEtcd(t *testing.T) {
	server := etcdtest.Start(t, nil)
	clustertest.Run(t, func(t *testing.T) cluster.Backend { return cluster.OnStore(storetest.Open(t, server.Config())) })
}

func TestStrict(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend {
		s := clustertest.NewStrict(1)
		t.Cleanup(s.Close)
		return s.Backend()
	})
}
