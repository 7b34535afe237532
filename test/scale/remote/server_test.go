package remote

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// server is the API server of a world.
type server interface {
	put(t *testing.T, objects ...any)
	backend(t *testing.T) cluster.Backend
	kubeconfig(t *testing.T) string // for the node's agent
	// wholeLists counts the agent's requests so far that list all groups or networks.
	wholeLists(t *testing.T) int
	pid() int // 0: it has no process of its own
}

// inMemory is a server of package kubernetestest.
type inMemory struct {
	*kubernetestest.Server
	node  *testutil.Node
	lists int
}

func newInMemory(t *testing.T, node *testutil.Node) server {
	t.Helper()
	return &inMemory{recordstest.NewServer(t), node, 0}
}

func (m *inMemory) put(_ *testing.T, objects ...any) {
	for _, o := range objects {
		m.Put(o)
	}
}

func (m *inMemory) backend(t *testing.T) cluster.Backend {
	t.Helper()
	return recordstest.Backend(t, m.ServeIn(t, func(f func() error) error { return f() }, "127.0.0.1:0").Kubeconfig)
}

func (m *inMemory) kubeconfig(t *testing.T) string {
	t.Helper()
	return m.ServeIn(t, m.node.Do, "127.0.0.1:0").Kubeconfig
}

func (m *inMemory) wholeLists(*testing.T) int {
	for _, q := range m.Requests() {
		if q.Verb == "list" && isListed(q.Resource) && !strings.HasPrefix(q.Selector, "metadata.name=") {
			m.lists++
		}
	}
	return m.lists
}

func (m *inMemory) pid() int { return 0 }

// isListed says that peers.db has the kind.
func isListed(resource string) bool {
	return resource == "porinendpointgroups" || resource == "porinnetworks"
}

// real is a kube-apiserver.
type real struct {
	*apiserver.Server
	admin *apiserver.Client
	node  *testutil.Node
}

func newReal(t *testing.T, node *testutil.Node) server {
	t.Helper()
	return startReal(t, node.Fabric, node)
}

func startReal(t *testing.T, fabric *testutil.Fabric, node *testutil.Node) *real {
	t.Helper()
	s := apiserver.Start(t, fabric)
	r := &real{s, s.Admin(), node}
	t.Cleanup(r.admin.Close)
	r.admin.ApplyFile(t, filepath.Join("..", "..", "..", "deploy", "porin.yaml"))
	for _, resource := range recordstest.Resources() {
		testutil.Eventually(t, func() error {
			return r.admin.Do(t.Context(), http.MethodGet, "/apis/"+resource.GroupVersion().String()+"/"+resource.Resource, nil, nil)
		})
	}
	return r
}

func (r *real) put(t *testing.T, objects ...any) {
	t.Helper()
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		r.admin.Apply(t, string(text))
	}
}

func (r *real) backend(t *testing.T) cluster.Backend {
	t.Helper()
	client, err := kubernetes.NewClientFor(r.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b, err := kubernetes.NewBackend(client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *real) kubeconfig(t *testing.T) string {
	t.Helper()
	return r.Agent(t, r.node.Name, "").Kubeconfig
}

func (r *real) wholeLists(t *testing.T) (n int) {
	t.Helper()
	for _, q := range r.Requests(t) {
		if q.Verb == "list" && isListed(q.Resource) && q.Name == "" {
			n++
		}
	}
	return n
}

func (r *real) pid() int { return r.PID() }
