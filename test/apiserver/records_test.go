package apiserver

import (
	"testing"

	backend "porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil/apiserver"
)

// TestConformance: records at the API server are as the backend of a cluster promises.
func TestConformance(t *testing.T) {
	c := newCluster(t, apiserver.StartLocal(t))
	kubeconfig := c.AdminKubeconfig(t)
	clustertest.Run(t, func(t *testing.T) backend.Backend {
		recordstest.Wipe(t, kubeconfig)
		return recordstest.Backend(t, kubeconfig)
	})
}
