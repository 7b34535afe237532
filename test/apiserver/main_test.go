// Package apiserver runs agents on a real Kubernetes API server, with the roles and admission policies of
// deploy/porin.yaml.
package apiserver

import (
	"net/http"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// manifest is what an administrator applies.
var manifest = filepath.Join("..", "..", "deploy", "porin.yaml")

// cluster is an API server with what an administrator applies, and the administrator's client.
type cluster struct {
	*apiserver.Server
	admin *apiserver.Client
}

func newCluster(t *testing.T, server *apiserver.Server) *cluster {
	t.Helper()
	c := &cluster{server, server.Admin()}
	t.Cleanup(c.admin.Close)
	c.admin.ApplyFile(t, manifest)
	for _, resource := range []string{"porinnodes", "porinsessions", "porinpools", "porinblocks", "porinclusters", "porinnetworks", "porinendpointgroups"} {
		testutil.Eventually(t, func() error { return c.admin.Do(t.Context(), http.MethodGet, group+resource, nil, nil) }) // 429 for a moment after the kind's creation
	}
	return c
}
