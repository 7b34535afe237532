package crash

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// kubernetesOperations are killed on a node with an API server: for its records, labels and policies.
var kubernetesOperations = []row{
	{"kubernetes, ADD", 2, agentAdd},
	{"kubernetes, DEL", 2, agentDel},
	{"kubernetes, start with endpoints and a deletion record", 2, ofAPI(agentRestore)},
}

// newKubernetesScene has a node with pools, and an API server in its namespace.
func newKubernetesScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := prepareScene(t, testutil.NewFabric)
	s.startAPI()
	s.putPolicies(ingressPolicies)
	s.mode = append(s.apiFlags(), "--ipam-mode=multi-pool", "--ipam-pre-allocate=1")
	pool := cluster.Pool{Name: cluster.DefaultPool, Prefixes: prefixes("10.64.0.0/24", "fd00:64::/120")}
	if _, err := admin.NewPools(s.records).Put(t.Context(), pool); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	s.begin()
	s.pools = &pools{s.agent, &s.records}
	s.settleIn(pods)
	return s
}

// startAPI starts an API server in the node's namespace that has the Node, and the namespaces of pods.
func (s *scene) startAPI() {
	s.t.Helper()
	api, kubeconfig := recordstest.StartServer(s.t)
	s.api, s.records = api, recordstest.Backend(s.t, kubeconfig)
	s.frontend = api.ServeIn(s.t, s.node.Do, "127.0.0.1:0")
	s.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name, UID: "node"}})
	for _, name := range []string{residents, guests} {
		s.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}})
	}
}

// apiFlags are the flags of an agent with its records at the API server.
func (s *scene) apiFlags() []string {
	return []string{"--store=kubernetes", "--kubeconfig=" + s.frontend.Kubeconfig}
}

func (s *scene) putPolicies(manifests string) {
	s.t.Helper()
	for text := range strings.SplitSeq(manifests, "---\n") {
		var policy map[string]any
		if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
			s.t.Fatal(err)
		}
		s.api.Put(policy)
	}
}

// podOf is what a runtime tells of a new pod, which the API server has, if there is one.
func (s *scene) podOf(namespace, name string) [][2]string {
	if s.api != nil {
		s.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: s.node.Name}})
	}
	return podArgs(namespace, name)
}

// ofAPI is the operation interrupted where the agent writes what it knows from the API server.
func ofAPI(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		o := of(s)
		o.only = func(e effect) bool {
			return slices.ContainsFunc([]string{"kubernetesnode.json", "policies.db", "multipool", "peers.db"}, func(file string) bool {
				return strings.HasPrefix(filepath.Base(e.on), file)
			})
		}
		return o
	}
}
