package policy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// node is the cell of one agent on a kernel.
type node struct {
	kernel   *fakeKernel
	queue    *Queue
	policies *Policies
	step     *Step
	flows    Flows
}

// startNode returns a node that has restored nothing yet. It ends with the test, or with stop.
func startNode(t *testing.T, dir string, kernel *fakeKernel) *node {
	t.Helper()
	return startNodeWith(t, engine.Config{}, dir, kernel)
}

func startNodeWith(t *testing.T, cfg engine.Config, dir string, kernel *fakeKernel) *node {
	t.Helper()
	return startQueue(t, NewQueue(cfg, kernel, nil, nil, quiet), dir, kernel)
}

func startNodeWithProxy(t *testing.T, proxy Proxy, dir string, kernel *fakeKernel) *node {
	t.Helper()
	return startQueue(t, NewQueue(engine.Config{}, kernel, proxy, nil, quiet), dir, kernel)
}

func startQueue(t *testing.T, q *Queue, dir string, kernel *fakeKernel) *node {
	t.Helper()
	n := &node{kernel: kernel, queue: q}
	n.policies, n.step = New(Config{Dir: dir}, n.queue, quiet), NewStep(n.queue)
	if err := n.policies.Start(); err != nil {
		t.Fatal(err)
	}
	n.queue.Start(nil)
	t.Cleanup(func() { n.stop(t) })
	return n
}

// servingNode returns a node that has restored nothing, for there is nothing.
func servingNode(t *testing.T, dir string) *node {
	t.Helper()
	n := startNode(t, dir, newFakeKernel())
	n.prune(t)
	return n
}

func servingNodeWith(t *testing.T, cfg engine.Config) *node {
	t.Helper()
	n := startNodeWith(t, cfg, "", newFakeKernel())
	n.prune(t)
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := n.queue.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := n.policies.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func (n *node) prune(t *testing.T, live ...endpoint.Endpoint) {
	t.Helper()
	if removed, err := n.step.Prune(t.Context(), live); err != nil || len(removed) > 0 {
		t.Fatalf("prune removed %q, %v", removed, err)
	}
}

func (n *node) put(t *testing.T, manifests string) {
	t.Helper()
	if _, _, err := n.policies.Put(t.Context(), []byte(manifests)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) attach(t *testing.T, ep endpoint.Endpoint) {
	t.Helper()
	if same, err := n.step.Attach(t.Context(), ep, nil); err != nil || same != ep {
		t.Fatalf("attach %s: %+v, %v", ep.Spec.Attachment, same, err)
	}
}

func (n *node) update(t *testing.T, ep endpoint.Endpoint) {
	t.Helper()
	if err := n.step.Update(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
}

// wants compares what the kernel says of a connection to port 80.
func (n *node) wants(t *testing.T, from, to endpoint.Endpoint, allowed bool, when string) {
	t.Helper()
	if got := n.kernel.allows(t, desiredFor(t, from), desiredFor(t, to), 80); got != allowed {
		t.Errorf("%s: %s to %s is allowed: %t, want %t", when, from.Spec.Pod.Name, to.Spec.Pod.Name, got, allowed)
	}
}

func desiredFor(t testing.TB, ep endpoint.Endpoint) desiredEndpoint {
	t.Helper()
	s, err := desiredOf(ep)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pod is endpoint number i, a pod of namespace default with the label app.
func pod(i int, app string) endpoint.Endpoint {
	ep := endpointtest.Endpoint(i)
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	if app != "" {
		ep.Metadata = fmt.Sprintf(`{"labels":{"app":%q}}`, app)
	}
	return ep
}

func policyOf(t testing.TB, text string) model.Policy {
	t.Helper()
	policies, err := manifest.Read([]byte(text))
	if err != nil || len(policies) != 1 {
		t.Fatalf("%d policies, %v", len(policies), err)
	}
	return policies[0]
}

// toWebFrom is a policy of namespace default: only pods of this app reach pods of app web.
func toWebFrom(app string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}], ports: [{port: 80}]}]
`, app)
}
