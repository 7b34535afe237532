package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// apiServer is a Kubernetes API, which all nodes of a test may share. After on it is also one node's way to it.
type apiServer struct {
	*kubernetestest.Server
	t       *testing.T
	backend cluster.Backend       // the records, with an administrator's rights
	admin   string                // flag of porin, for an administrator
	empty   kubernetestest.Backup // without records and pods

	node     *testutil.Node
	frontend *kubernetestest.Frontend
	flags    []string // of the node's agent
}

// newAPI returns an API server that no node reaches yet, with the namespaces of the tests.
func newAPI(t *testing.T) *apiServer {
	t.Helper()
	server, kubeconfig := recordstest.StartServer(t)
	s := &apiServer{Server: server, t: t, backend: recordstest.Backend(t, kubeconfig), admin: "--kubeconfig=" + kubeconfig}
	for _, name := range []string{"shop", "demo"} {
		s.namespace(name, nil)
	}
	s.empty = server.Backup()
	return s
}

func newAPIServer(t *testing.T, node *testutil.Node) *apiServer {
	t.Helper()
	return newAPI(t).on(node)
}

// on is the same API in the namespace of a node.
func (s *apiServer) on(node *testutil.Node) *apiServer {
	s.t.Helper()
	o := *s
	o.node, o.frontend = node, s.ServeIn(s.t, node.Do, "127.0.0.1:0")
	o.flags = []string{"--kubeconfig=" + o.frontend.Kubeconfig}
	return &o
}

// listen begins to serve again, at the same address as before.
func (s *apiServer) listen() {
	s.t.Helper()
	if err := s.frontend.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends all connections.
func (s *apiServer) stop() { s.frontend.Stop() }

func (s *apiServer) namespace(name string, labels map[string]string) {
	all := map[string]string{"kubernetes.io/metadata.name": name}
	for key, value := range labels {
		all[key] = value
	}
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}})
}

// pod creates or changes a pod of the node, with the UID that rig.named has.
func (s *apiServer) pod(name, app string) {
	s.putPod("shop", name, "u-"+name, map[string]string{"app": app})
}

// podOf creates the pod that a runtime names for a container, if it does.
func (s *apiServer) podOf(c *testutil.Container) {
	args := map[string]string{}
	for _, arg := range c.Args {
		args[arg[0]] = arg[1]
	}
	if name := args["K8S_POD_NAME"]; name != "" {
		s.Delete("pods", args["K8S_POD_NAMESPACE"], name) // an earlier one
		s.putPod(args["K8S_POD_NAMESPACE"], name, args["K8S_POD_UID"], nil)
	}
}

func (s *apiServer) putPod(namespace, name, uid string, labels map[string]string) {
	s.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: s.node.Name, Containers: []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}},
	})
}

// policy creates or changes a policy.
func (s *apiServer) policy(manifest string) {
	s.t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &fields); err != nil {
		s.t.Fatal(err)
	}
	s.Put(fields)
}

// putPool creates or changes a pool without quarantine, as an administrator does.
func (s *apiServer) putPool(p v1.PoolSpec) {
	s.t.Helper()
	pool := cluster.Pool{Name: p.Name, Prefixes: p.Prefixes, IPv4BlockBits: p.IPv4BlockBits, IPv6BlockBits: p.IPv6BlockBits}
	if _, err := admin.NewPools(s.backend).Put(s.t.Context(), pool); err != nil {
		s.t.Fatal(err)
	}
}

// store returns the agent's flags for records at the server. An administrator creates the default pool, if the flags
// name its prefixes.
func (s *apiServer) store(flags []string) []string {
	s.t.Helper()
	agent := []string{"--store=kubernetes"}
	for _, flag := range flags {
		prefixes, ok := strings.CutPrefix(flag, "--ipam-default-pool=")
		if !ok {
			agent = append(agent, flag)
			continue
		}
		pool := v1.PoolSpec{Name: "default"}
		for prefix := range strings.SplitSeq(prefixes, ",") {
			pool.Prefixes = append(pool.Prefixes, netip.MustParsePrefix(prefix))
		}
		if _, err := s.backend.Pools.Get(s.t.Context(), pool.Name); errors.Is(err, cluster.ErrNotFound) {
			s.putPool(pool)
		}
	}
	return agent
}

// multiPool are the flags of an agent with addresses of the default pool.
var multiPool = []string{"--ipam-mode=multi-pool", "--ipam-pod-cidr=", "--ipam-default-pool=10.64.0.0/16,fd00:64::/64", "--ipam-quarantine=0s"}

// rigOn returns a node whose agent has its records at the server.
func (s *apiServer) rigOn(node *testutil.Node, flags ...string) *rig {
	s.t.Helper()
	on := s.on(node)
	r := rigOn(s.t, node, slices.Concat(on.store(flags), on.flags)...)
	r.server = on
	return r
}

// newRig returns a node in a network of its own, in mode multi-pool.
func (s *apiServer) newRig(flags ...string) *rig {
	s.t.Helper()
	testutil.Root(s.t)
	return s.rigOn(testutil.NewNode(s.t), slices.Concat(multiPool, flags)...)
}

// configure gives the next start of the agent other flags.
func (r *rig) configure(flags ...string) {
	r.Helper()
	r.agent.Configure(slices.Concat(r.server.store(flags), r.server.flags)...)
}

// asAdmin runs porin cluster with an administrator's kubeconfig.
func (s *apiServer) asAdmin(args ...string) finished {
	s.t.Helper()
	return run(s.t, func(start func() error) error { return start() }, nil, "porin", append(append([]string{"cluster"}, args...), s.admin)...)
}

// owns is nil when a node owns the blocks of addresses for the server.
func (s *apiServer) owns(node string, addrs ...netip.Addr) error {
	var owned []cluster.Block
	for b, err := range s.backend.Blocks.All(context.Background(), cluster.BlockFilter{}) {
		if err != nil {
			return err
		}
		if b.Owner.Name == node {
			owned = append(owned, b)
		}
	}
	for _, addr := range addrs {
		if !slices.ContainsFunc(owned, func(b cluster.Block) bool { return b.CIDR.Contains(addr) }) {
			return fmt.Errorf("%s is not of %s, which has %v", addr, node, owned)
		}
	}
	return nil
}
