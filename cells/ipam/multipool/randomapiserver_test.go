package multipool_test

import (
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"

	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// TestRandomAPIServer is TestRandom on a real API server. Its etcd is restored under it, with and without
// --bump-revision.
func TestRandomAPIServer(t *testing.T) {
	s := drawSeed(t)
	random(t, apiserverBacking(t, s), s)
}

// apiserverBacking is wiped by deletions at the API server. A backup advances etcd's revision, as other clients would:
// a restored etcd does not reach the revision that an agent has seen before that agent lists.
func apiserverBacking(t *testing.T, seed uint64) *backing {
	server := apiserver.StartLocal(t)
	admin := server.Admin()
	t.Cleanup(admin.Close)
	admin.ApplyFile(t, filepath.Join("..", "..", "..", "deploy", "chart", "templates", "crds.yaml"))
	served := func() { // 429 for a moment after the kind's creation, and after a start
		for _, r := range recordstest.Resources() {
			path := "/apis/" + r.GroupVersion().String() + "/" + r.Resource
			testutil.Eventually(t, func() error { return admin.Do(t.Context(), http.MethodGet, path, nil, nil) })
		}
	}
	served()
	kubeconfig := server.AdminKubeconfig(t)
	rng := rand.New(rand.NewPCG(seed, 2000))
	snapshot, bump := "", uint64(0)
	least := int64(6)
	if testutil.Full() {
		least = 36
	}
	return &backing{
		Backend: recordstest.Backend(t, kubeconfig), relists: true, every: 600, least: least,
		save: func() {
			snapshot = server.Save(t)
			server.Advance(t, 1000)
		},
		restore: func() { server.Restore(t, snapshot, 0); served() },
		bumped: func() {
			bump += 1e9 // etcd's documentation advises so much. The same backup may be restored twice, and revisions must be above all earlier ones
			if restart := rng.IntN(2) == 0; restart {
				server.Restore(t, snapshot, bump)
			} else {
				t.Log("etcd is restored under a running API server")
				server.RestoreEtcd(t, snapshot, bump)
			}
			served()
		},
		wipe:    func() { recordstest.Wipe(t, kubeconfig) },
		compact: func() { server.Compact(t) },
	}
}
