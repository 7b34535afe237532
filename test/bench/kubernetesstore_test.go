package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
)

const (
	storeNamespaces = 300
	storePolicies   = 300
	storeRuns       = 5
	storeRunPods    = 30 // of a run, for each system
)

// kubernetesStore compares agents with their records at the API server and in the embedded store: memory with as many
// pods, namespaces and policies, and pods one after the other, in runs that alternate.
func kubernetesStore(t *testing.T, r *report) {
	server, node, frontend := startAPI(t)
	kubeconfig := "--kubeconfig=" + frontend.Kubeconfig
	for i := range storeNamespaces {
		server.Put(object("v1", "Namespace", "", fmt.Sprintf("namespace-%d", i), map[string]any{"labels": map[string]any{"team": fmt.Sprint(i)}}))
	}
	server.Put(object("v1", "Namespace", "", "shop", map[string]any{}))
	server.Put(object("v1", "Node", "", node.Name, map[string]any{}))
	createPool(t, node, kubeconfig)
	kubernetes := porinWith(t, node, "kubernetes", nil, "--store=kubernetes", "--ipam-mode=multi-pool", kubeconfig)
	own := porinWith(t, testutil.NewNode(t), "embedded", nil, "--ipam-mode=multi-pool")
	pool := v1.PoolSpec{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix(storePool)}, Quarantine: new(time.Duration(0))}
	if err := own.agent.Do(http.MethodPut, "/v1/pool/"+pool.Name, pool, nil); err != nil {
		t.Fatal(err)
	}

	manifests := []any{}
	for i := range storePolicies {
		policy := ingressPolicy(fmt.Sprintf("policy-%d", i), i%endpoints, networkPolicyPeers(i, 3), 1000+i)
		server.Put(policy)
		manifests = append(manifests, policy)
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": manifests}
	if err := own.agent.Do(http.MethodPut, "/v1/policy", list, nil); err != nil {
		t.Fatal(err)
	}
	for i := range endpoints {
		kubernetes.attach(t, podOf(t, server, node.Name, i))
		own.attach(t, containerOf(t, i))
		labels := v1.EndpointPatch{Labels: map[string]string{"app": fmt.Sprint(i)}}
		if err := own.agent.Do(http.MethodPatch, "/v1/endpoint/"+url.PathEscape(fmt.Sprintf("pod-name:shop/pod-%d", i)), labels, nil); err != nil {
			t.Fatal(err)
		}
	}
	const memory = "memory with 250 endpoints, 300 namespaces and 300 policies"
	for _, s := range []*system{kubernetes, own} {
		st := status(t, s)
		if st.Endpoints["ready"] != endpoints || st.Policy.Policies != storePolicies || st.Policy.Error != "" {
			t.Fatalf("%s: endpoints %v, %d policies, %q", s.name, st.Endpoints, st.Policy.Policies, st.Policy.Error)
		}
		r.add(memory, s.name, residentMiB(t, s.agent.PID()), "MiB")
	}
	r.against(memory, own.name)
	for _, s := range []*system{kubernetes, own} {
		s.agent.Restart(t)
		testutil.Eventually(t, func() error {
			if st := status(t, s); st.Endpoints["ready"] != endpoints || st.Policy.Policies != storePolicies {
				return fmt.Errorf("%s: endpoints %v, %d policies", s.name, st.Endpoints, st.Policy.Policies)
			}
			return nil
		})
		time.Sleep(5 * time.Second) // lists are read, and their garbage is collected
		r.add(memory+", restored", s.name, residentMiB(t, s.agent.PID()), "MiB")
	}
	r.against(memory+", restored", own.name)
	for _, measure := range []string{memory, memory + ", restored"} {
		r.atMost(measure+", more than with the embedded store", r.value(measure, kubernetes.name)-r.value(measure, own.name), 8, " MiB")
	}
	storeRounds(t, r, server, kubernetes, own)
}

const storePool = "10.200.0.0/16"

// createPool creates the default pool at the API server, as an administrator does.
func createPool(t *testing.T, node *testutil.Node, kubeconfig string) {
	t.Helper()
	create := exec.CommandContext(t.Context(), filepath.Join(testutil.Build(t), "porin"), "cluster", "pool", "create", "default", "--quarantine=0s", "--prefix="+storePool, kubeconfig)
	create.Stderr = os.Stderr
	if err := node.Do(create.Run); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
}

// storeRounds attaches and detaches pods of both systems in turns, in several runs. The API server has told of a pod
// before it is attached.
func storeRounds(t *testing.T, r *report, server *kubernetestest.Server, kubernetes, own *system) {
	t.Helper()
	systems := []*system{kubernetes, own}
	order := rand.New(rand.NewPCG(1, 2))
	medians := map[string]map[string][]float64{"add": {}, "del": {}}
	for run := range storeRuns + 1 { // the first one warms
		pods := map[string][]*testutil.Container{}
		for i := range storeRunPods {
			n := endpoints + run*storeRunPods + i
			pods[kubernetes.name] = append(pods[kubernetes.name], podOf(t, server, kubernetes.node.Name, n))
			pods[own.name] = append(pods[own.name], containerOf(t, n))
		}
		testutil.Eventually(t, func() error {
			for _, kind := range status(t, kubernetes).Kubernetes.Kinds {
				if want := endpoints + (run+1)*storeRunPods; kind.Kind == "pods" && kind.Objects != want {
					return fmt.Errorf("the agent knows %d pods, want %d", kind.Objects, want)
				}
			}
			return nil
		})
		for _, op := range []string{"add", "del"} {
			took := map[string][]time.Duration{}
			for i := range storeRunPods {
				for _, k := range order.Perm(len(systems)) {
					s := systems[k]
					took[s.name] = append(took[s.name], s.call(t, op, 1, pods[s.name][i]).Calls[0].Took)
				}
			}
			for _, s := range systems {
				if run > 0 {
					medians[op][s.name] = append(medians[op][s.name], percentile(took[s.name], 0.5))
				}
			}
		}
	}
	for _, op := range []string{"add", "del"} {
		p50 := strings.ToUpper(op) + " p50"
		middle, slowest := p50+", median of five runs", p50+", slowest of five runs"
		for _, s := range systems {
			r.add(middle, s.name, median(medians[op][s.name]), "ms")
			r.add(slowest, s.name, slices.Max(medians[op][s.name]), "ms")
		}
		r.against(middle, own.name)
		r.atMost(p50+" with the API server, of the slowest run's with the embedded store", r.value(middle, kubernetes.name)/r.value(slowest, own.name), 1, "")
	}
}
