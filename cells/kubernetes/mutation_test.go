package kubernetes_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/fx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/testutil"
)

//go:embed testdata/mutated.yaml
var mutatedObjects string

// mutated is a kind whose objects are mutated.
type mutated struct {
	kubernetestest.Resource
	namespace string
	policy    model.PolicyID // the zero value if the kind is none of policies
	text      string         // a valid object as JSON, with N in the place of a digit
}

// kinds returns the kinds of testdata/mutated.yaml.
func kinds(t testing.TB) (all []mutated) {
	for document := range strings.SplitSeq(mutatedObjects, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		object := unstructured.Unstructured{Object: decoded(string(text))}
		k := mutated{text: string(text), namespace: object.GetNamespace()}
		k.GroupVersionResource, _ = meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		k.Kind, k.Namespaced = object.GetKind(), object.GetNamespace() != ""
		if strings.HasSuffix(k.Kind, "Policy") {
			k.policy = model.PolicyID{Kind: k.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
		}
		all = append(all, k)
	}
	return all
}

var digits = regexp.MustCompile(`(\ba|\.)N`)

func (k mutated) object(digit int) string {
	return digits.ReplaceAllString(k.text, fmt.Sprintf("${1}%d", digit))
}

// namesOthers is a policy of web, whose rules name objects of the Kubernetes API.
const namesOthers = `{"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": "egress", "namespace": "shop"},
	"spec": {"endpointSelector": {"matchLabels": {"app": "web"}}, "egress": [{"toEntities": ["kube-apiserver"]},
	{"toCIDRSet": [{"cidrGroupRef": "office"}]}, {"toServices": [{"k8sService": {"serviceName": "db", "namespace": "shop"}}]}]}}`

// podAddress is the address of the pod with the label app=aN.
func podAddress(digit int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(10 + digit)}) }

var (
	webAddress = netip.MustParseAddr("10.1.0.2")
	fuzzedPod  = podOf(2, "fuzzed", netip.MustParseAddr("10.1.0.3"))
)

func podOf(id int, name string, addr netip.Addr) endpoint.Endpoint {
	ep := endpointtest.Endpoint(id)
	ep.Spec.Pod, ep.State = endpoint.Pod{Namespace: "shop", Name: name, UID: "u1"}, endpoint.Ready
	ep.Addresses.IPv4, ep.Metadata = addr, fmt.Sprintf(`{"labels":{"app":%q},"namespaceLabels":{"team":"shop"}}`, name)
	return ep
}

// mutatedAgent is the cell as the agent has it, with the policies, endpoints and records that it changes.
type mutatedAgent struct {
	kinds    []mutated
	server   *kubernetestest.Server
	own      *kubernetes.OwnNode
	pods     *kubernetes.Pods
	policies *policy.Policies
	view     *policy.View
	manager  *endpointmanagertest.Manager
	backend  cluster.Backend
	status   []server.StatusReporter

	mu   sync.Mutex // guards the field below
	told map[string]string
}

func startMutatedAgent(t *testing.T) *mutatedAgent {
	fake, kubeconfig := recordstest.StartServer(t)
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	fake.Serve(kubernetestest.Resource{GroupVersionResource: crds, Kind: "CustomResourceDefinition"})
	fake.Serve(kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Namespaced: true})
	a := &mutatedAgent{kinds: kinds(t), told: map[string]string{}, server: fake}
	for _, k := range a.kinds {
		a.server.Serve(k.Resource)
		crd := &unstructured.Unstructured{Object: map[string]any{}}
		crd.SetGroupVersionKind(crds.GroupVersion().WithKind("CustomResourceDefinition"))
		crd.SetName(k.GroupVersionResource.GroupResource().String())
		a.server.Put(crd.Object)
	}
	a.server.Put(decoded(namesOthers))

	var step *policy.Step
	log := slog.New(slog.NewTextHandler(noErrors{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	app := fx.New(fx.NopLogger, fx.Supply(log, restored.Opened()),
		policy.Module(policy.DefaultConfig()), supervisor.Module(supervisor.DefaultConfig()),
		kubernetes.Module(kubernetes.Config{Kubeconfig: kubeconfig}, "n1"),
		fx.Provide(kubernetes.NewAgentBackend, func() kubernetes.Nodes { return func() []string { return nil } }),
		fx.Provide(func() (*doctor.Doctor, error) { return doctor.New(doctor.Config{}, log) }),
		fx.Provide(func() (none1 policy.Enforcer, none2 policy.Connections, none3 policy.Flows) { return nil, nil, nil }),
		fx.Provide(func() (none1 policy.Proxy, none2 policy.RemoteSource) { return nil, nil }),
		fx.Provide(func(step *policy.Step) (*endpointmanagertest.Manager, endpointmanager.Manager, endpointmanager.Lookup) {
			m := endpointmanagertest.NewManager(endpoint.Steps{step})
			return m, m, m
		}),
		fx.Invoke(fx.Annotate(func(all []server.StatusReporter) { a.status = all },
			fx.ParamTags(`group:"server.reporters"`))),
		fx.Populate(&step, &a.own, &a.pods, &a.policies, &a.view, &a.manager, &a.backend))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	pods := []endpoint.Endpoint{podOf(1, "web", webAddress), fuzzedPod}
	for digit := range 3 {
		pods = append(pods, podOf(10+digit, fmt.Sprintf("a%d", digit), podAddress(digit)))
	}
	a.manager.Set(pods...)
	if _, err := step.Prune(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if _, err := step.Attach(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
	}
	followRecords(t, a, "PorinNode", a.backend.Nodes.Watch)
	followRecords(t, a, "PorinSession", func(ctx context.Context) (<-chan cluster.Change[cluster.Session], error) {
		return a.backend.Sessions.Watch(ctx, cluster.NodeID{Name: "n1", Key: "aaaaaaaaaa"})
	})
	followRecords(t, a, "PorinPool", a.backend.Pools.Watch)
	followRecords(t, a, "PorinCluster", a.backend.Info.Watch)
	followRecords(t, a, "PorinNetwork", fromStart(a.backend.Networks))
	followRecords(t, a, "PorinEndpointGroup", fromStart(a.backend.Endpoints))
	return a
}

// fromStart watches without an earlier watch.
func fromStart[T any](p cluster.Published[T]) func(context.Context) (<-chan cluster.Change[T], error) {
	return func(ctx context.Context) (<-chan cluster.Change[T], error) { return p.Watch(ctx, cluster.Resume[T]{}) }
}

// noErrors is a log of errors that fails the test with each: no object is a reason for one.
type noErrors struct{ t *testing.T }

func (w noErrors) Write(line []byte) (int, error) {
	w.t.Errorf("logged: %.1000s", line)
	return len(line), nil
}

// followRecords keeps the last change of a kind that the backend has told.
func followRecords[T any](
	t *testing.T, a *mutatedAgent, kind string, watch func(context.Context) (<-chan cluster.Change[T], error),
) {
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for change := range changes {
			if change.Kind != cluster.Deleted {
				text, err := json.Marshal(change)
				a.mu.Lock()
				a.told[kind] = fmt.Sprintf("%s %v", text, err)
				a.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); following.Wait() })
}

// reachable returns which kinds the agent cannot read.
func (a *mutatedAgent) reachable() error {
	status := v1.Status{}
	for _, r := range a.status {
		r.Report(&status)
	}
	var errs []error
	for _, k := range status.Kubernetes.Kinds {
		if k.Error != "" || !k.Synced {
			errs = append(errs, fmt.Errorf("%s: synced %t, %.1000s", k.Kind, k.Synced, k.Error))
		}
	}
	return errors.Join(errs...)
}

// knows returns which valid object the agent does not know.
func (a *mutatedAgent) knows(ctx context.Context, digit int) error {
	var errs []error
	mark := fmt.Sprintf(`"a%d"`, digit)
	want := func(what, got, mark string) {
		if !strings.Contains(got, mark) {
			errs = append(errs, fmt.Errorf("%s: %.1000s, want %s", what, got, mark))
		}
	}
	for _, k := range a.kinds {
		if k.policy.Kind != "" {
			m, _ := a.policies.Get(k.policy)
			want(k.Kind, string(m.JSON), mark)
		}
	}
	for from := 1; from <= 2; from++ {
		if verdict := a.view.Evaluate(podAddress(from), webAddress, model.TCP, 80); verdict.Allowed != (from == digit) {
			errs = append(errs, fmt.Errorf("a%d reaches web: %v", from, verdict))
		}
		group, api := netip.AddrFrom4([4]byte{198, 51, 100, byte(from)}), netip.AddrFrom4([4]byte{203, 0, 113, byte(from)})
		for _, to := range []netip.Addr{podAddress(from), group, api} {
			if verdict := a.view.Evaluate(webAddress, to, model.TCP, 443); verdict.Allowed != (from == digit) {
				errs = append(errs, fmt.Errorf("web reaches %s: %v", to, verdict))
			}
		}
	}
	fuzzed, err := a.manager.Get(endpoint.ByAttachment(fuzzedPod.Spec.Attachment))
	errs = append(errs, err)
	want("labels of the pod", fuzzed.Metadata, `"app":`+mark)
	want("labels of its namespace", fuzzed.Metadata, `"team":`+mark)
	_, _, labels, _ := a.own.Node()
	want("labels of the Node", fmt.Sprintf("%q", labels["zone"]), mark)
	blocks := ""
	for block, err := range a.backend.Blocks.All(ctx, cluster.BlockFilter{}) {
		blocks += fmt.Sprintf("%q %v", block.Claim, err)
	}
	want("blocks", blocks, mark)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.kinds {
		if k.Group == records.Version.Group && k.Kind != "PorinBlock" { // which is not watched
			want(k.Kind, a.told[k.Kind], mark)
		}
	}
	return errors.Join(errs...)
}

const mutationSeed = 28

// TestMutatedObjects sends mutants of each kind through the watches, some of them in lists, to the cell as the agent
// has it. The agent knows the valid objects that follow, and a policy with one fault opens nothing.
func TestMutatedObjects(t *testing.T) {
	rounds, batch := 250, 125
	if testutil.Full() {
		rounds = 10_000
	}
	a := startMutatedAgent(t)
	put := func(digit int) {
		t.Helper()
		for _, k := range a.kinds {
			a.server.Put(decoded(k.object(digit)))
		}
		if err := testutil.Poll(testutil.Patience, func() error { return a.knows(t.Context(), digit) }); err != nil {
			t.Fatalf("seed %d: %v", mutationSeed, err)
		}
	}
	put(1)
	goroutines, memory := runtime.NumGoroutine(), inUse()
	for round := range rounds {
		for i, k := range a.kinds {
			m := mutator{rand.New(rand.NewPCG(mutationSeed, uint64(round*len(a.kinds)+i)))}
			mutant, mutations := m.send(t, a.server, k)
			if k.policy.Kind != "" {
				checkPolicy(t, mutant, mutations)
			}
		}
		switch round % batch {
		case batch / 2:
			if round < batch {
				a.server.EndWatches() // mutants that follow come in lists
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			// It ends the pauses of watches, as an ADD does.
			_, _ = a.pods.Metadata(ctx, endpoint.Pod{Namespace: "shop", Name: "unknown"})
		case batch - 1:
			if err := testutil.Poll(testutil.Patience, a.reachable); err != nil {
				t.Errorf("seed %d, after round %d: %v", mutationSeed, round, err)
			}
			for _, k := range a.kinds {
				for i := range otherNames {
					a.server.Delete(k.GroupVersionResource.Resource, k.namespace, nameOf(i))
				}
			}
			put(1 + round/batch%2)
			a.server.Compact()
		}
	}
	if more := runtime.NumGoroutine() - goroutines; more > 20 {
		t.Errorf("%d goroutines more than before", more)
	}
	if now := inUse(); now > memory+64<<20 {
		t.Errorf("%d MiB in use, %d before", now>>20, memory>>20)
	}
}

func inUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

const otherNames = 30

func nameOf(i int) string { return fmt.Sprintf("other-%d", i) }

// send puts a mutant that the API server takes, often under the name of the valid object.
func (m mutator) send(t *testing.T, server *kubernetestest.Server, k mutated) (mutant map[string]any, mutations int) {
	t.Helper()
	for range 100 {
		mutations = 1 + m.IntN(2)*m.IntN(5)
		mutant = m.mutant(k.object(0), mutations)
		if m.IntN(5) == 0 {
			mutant["metadata"].(map[string]any)["name"] = nameOf(m.IntN(otherNames))
		}
		if server.TryPut(mutant) == nil {
			return mutant, mutations
		}
	}
	t.Fatalf("seed %d: the server refuses all mutants of %s", mutationSeed, k.Kind)
	return nil, 0
}

// checkPolicy reads a mutant of a policy as it comes from the API server, and as the agent keeps it on the disk. A
// single mutation that is a fault does not open what the valid policy denies.
func checkPolicy(t *testing.T, mutant map[string]any, mutations int) {
	t.Helper()
	data, err := json.Marshal(mutant)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("seed %d: %.3000s", mutationSeed, data)
	object, faults := manifest.ReadObject(data)
	if kept, _ := manifest.ReadObject(object.JSON); kept.Policy.ID != object.Policy.ID {
		t.Errorf("%s was %v, and is %v after a restart", text, object.Policy.ID, kept.Policy.ID)
	}
	if len(faults) == 0 || mutations > 1 {
		return
	}
	e := engine.New(engine.Config{})
	update := engine.Update{SetPolicies: object.Policy.Parts()}
	for name, addr := range map[string]netip.Addr{"web": webAddress, "a1": podAddress(1)} {
		update.SetEndpoints = append(update.SetEndpoints, model.Endpoint{
			Key: name, Kind: model.Pod, Local: true, Namespace: "shop", Name: name, Addresses: []netip.Addr{addr},
			NamespaceLabels: map[string]string{"team": "shop"}, Labels: map[string]string{"app": name},
		})
	}
	e.Apply(update)
	if verdict := e.Evaluate(podAddress(1), webAddress, model.TCP, 80); verdict.Allowed {
		t.Errorf("%s lets a1 reach web: %v; faults %q", text, verdict, faults)
	}
}

// FuzzPolicyObject mutates policies as the bytes say.
func FuzzPolicyObject(f *testing.F) {
	var policies []mutated
	for _, k := range kinds(f) {
		if k.policy.Kind != "" {
			policies = append(policies, k)
			f.Add(uint8(len(policies)-1), []byte("some bytes"))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		m := mutator{rand.New(&bytesSource{data})}
		mutations := 1 + m.IntN(4)
		k := policies[int(kind)%len(policies)]
		checkPolicy(t, m.mutant(k.object(0), mutations), mutations)
	})
}
