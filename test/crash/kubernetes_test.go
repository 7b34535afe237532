package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	kuberecords "porin.dev/porin/cells/kubernetes/records"
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
	kubeconfig, records := s.startAPI()
	s.mode = []string{"--ipam-mode=multi-pool", "--ipam-pre-allocate=1", "--store=kubernetes", kubeconfig}
	create := exec.CommandContext(t.Context(), filepath.Join(testutil.Build(t), "porin"), "pool", "create", "default", "--quarantine=0s",
		"--prefix=10.64.0.0/24", "--prefix=fd00:64::/120", kubeconfig)
	create.Stderr = os.Stderr
	if err := s.node.Do(create.Run); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
	s.begin()
	s.pools = &pools{s.agent, &records}
	s.settleIn(pods)
	return s
}

// startAPI starts an API server that has the Node, the namespaces of pods and their policies. It returns the agent's flag for it, and the
// records.
func (s *scene) startAPI() (flag string, records cluster.Backend) {
	s.t.Helper()
	api, kubeconfig := recordstest.StartServer(s.t)
	s.api = api
	s.api.Serve(kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, Kind: "NetworkPolicy", Namespaced: true})
	s.api.Serve(kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition"})
	for _, name := range kuberecords.Definitions() {
		s.api.Put(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name}})
	}
	s.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name, UID: "node"}})
	for _, name := range []string{residents, guests} {
		s.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}})
	}
	for text := range strings.SplitSeq(ingressPolicies, "---\n") {
		var policy map[string]any
		if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
			s.t.Fatal(err)
		}
		s.api.Put(policy)
	}
	return "--kubeconfig=" + s.api.ServeIn(s.t, s.node.Do), recordstest.Backend(s.t, kubeconfig)
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
