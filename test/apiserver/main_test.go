// Package apiserver runs agents on a real Kubernetes API server, with the roles and admission policies of deploy/kubernetes.
package apiserver

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// cluster is an API server with what an administrator applies, and the administrator's client.
type cluster struct {
	*apiserver.Server
	admin *apiserver.Client
}

func newCluster(t *testing.T, fabric *testutil.Fabric) *cluster {
	t.Helper()
	c := &cluster{Server: apiserver.Start(t, fabric)}
	c.admin = c.Admin()
	t.Cleanup(c.admin.Close)
	c.applyKinds(t)
	for _, file := range []string{"agent-role.yaml", "admission.yaml"} {
		c.admin.ApplyFile(t, filepath.Join("..", "..", "deploy", "kubernetes", file))
	}
	return c
}

// applyKinds creates Porin's kinds, without their schemas.
func (c *cluster) applyKinds(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"PorinNode", "PorinSession", "PorinPool", "PorinBlock", "PorinCluster", "PorinNetwork", "PorinEndpointGroup"} {
		name := strings.ToLower(kind)
		c.admin.Apply(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.porin.dev}
spec:
  group: porin.dev
  scope: Cluster
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, name, kind))
	}
}
