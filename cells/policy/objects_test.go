package policy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// ofAPI is a policy as the Kubernetes API has it: pods of the app may reach web.
func ofAPI(name, app, more string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":%q,"namespace":"default","uid":%q},`+
		`"spec":{"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":%q}}%s}]}]}}`, name, "u-"+name, app, more)
}

func (n *node) replace(t *testing.T, objects ...[]byte) {
	t.Helper()
	if err := n.policies.ReplaceObjects(t.Context(), model.KindNetworkPolicy, objects); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
}

// flush returns when what was collected is written.
func (n *node) flush(t *testing.T) {
	t.Helper()
	if err := n.queue.set(t.Context(), update{}); err != nil {
		t.Fatal(err)
	}
}

// TestObjects has policies of the Kubernetes API come, change, meet policies of files, and go; the state of the API
// replaces what was told before, and outlives the agent.
func TestObjects(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		n.attach(t, ep)
	}
	wants := func(when string, fromClient, fromOther bool) {
		t.Helper()
		n.wants(t, client, web, fromClient, when)
		n.wants(t, other, web, fromOther, when)
	}
	n.replace(t, ofAPI("a", "client", ""), ofAPI("b", "other", ""))
	wants("after the list", true, true)
	n.replace(t, ofAPI("a", "client", ""))
	wants("after a list without one of them", true, false)
	if err := n.policies.SetObject(t.Context(), ofAPI("a", "other", "")); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	wants("after a change", false, true)
	if err := n.policies.SetObject(t.Context(), ofAPI("a", "other", `,"newSelector":{}`)); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	wants("with a field that is not known", false, false)
	if _, list := call(n)("GET", "/v1/policy", ""); !strings.Contains(list, `"source":"kubernetes"`) || !strings.Contains(list, "newSelector") {
		t.Errorf("policies %s, want the source and the fault", list)
	}

	if faults := n.policies.Faults(); len(faults) != 1 || faults[0].Policy.Name != "a" || faults[0].UID != "u-a" || !strings.Contains(strings.Join(faults[0].Texts, ""), "newSelector") {
		t.Errorf("faults %+v, want one of the policy with the field", faults)
	}

	byHand := strings.Replace(toWebFrom("client"), "name: web", "name: a", 1)
	if _, _, err := n.policies.Put(t.Context(), []byte(byHand)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("put of a policy of the API: %v, want conflict", err)
	}
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "a"}
	if err := n.policies.Delete(t.Context(), id); fault.KindOf(err) != fault.Conflict {
		t.Errorf("delete of a policy of the API: %v, want conflict", err)
	}
	if err := n.policies.RemoveObject(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	wants("after the deletion", true, true)
	n.put(t, byHand)
	n.replace(t, ofAPI("a", "other", ""))
	wants("with both", true, false)
	if faults := n.policies.Faults(); len(faults) > 0 {
		t.Errorf("faults %+v of a policy that is not in force", faults)
	}
	n.stop(t)

	again := startNode(t, dir, newFakeKernel())
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		if _, err := again.step.Restore(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	again.prune(t, web, client, other)
	again.wants(t, client, web, true, "after a restart without the API")
	if err := again.policies.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	again.wants(t, client, web, false, "after the file's policy was deleted")
	again.wants(t, other, web, true, "after the file's policy was deleted")
	if names := again.names(); !slices.Equal(names, []string{"NetworkPolicy default/a"}) {
		t.Errorf("policies %q", names)
	}
}

// TestObjectsInBatches: a list of many policies is compiled in batches, between which an ADD has its turn, and new
// policies come before others end.
func TestObjectsInBatches(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	list := func(name string) (all [][]byte) {
		for i := range batchWeight {
			all = append(all, ofAPI(fmt.Sprintf("%s-%d", name, i), "client", ""))
		}
		return all
	}
	n.replace(t, list("old")...)
	before := n.kernel.times()
	n.kernel.mu.Lock()
	n.kernel.refuse = func(map[string]Local) error {
		if n.queue.view.Evaluate(other.Addresses.IPv4, web.Addresses.IPv4, model.TCP, 80).Allowed {
			t.Error("no policy selects the pod while one list replaces another")
		}
		return nil
	}
	n.kernel.mu.Unlock()
	n.replace(t, list("new")...)
	if writes := n.kernel.times() - before; writes < 4 { // a new policy weighs 3, the end of one 1
		t.Errorf("%d writes, want one for each batch", writes)
	}
	if names := n.names(); len(names) != batchWeight {
		t.Errorf("%d policies, want %d", len(names), batchWeight)
	}
}

// TestObjectsTooLarge: a policy of the API that cannot be compiled denies, and other changes go on.
func TestObjectsTooLarge(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, web)
	before := n.queue.view.engine
	n.replace(t, jsonOf(t, overlapping(2500)))
	n.attach(t, client)
	if n.queue.view.engine != before {
		t.Error("the queue's engine was replaced: others have waited")
	}
	n.wants(t, client, web, false, "with a policy that is too large")
	if err := n.policies.view.gaveUp(model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "large"}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("given up: %v, want exhausted", err)
	}
	if faults := n.policies.Faults(); len(faults) != 1 || !strings.Contains(strings.Join(faults[0].Texts, ""), errTooLarge.Error()) {
		t.Errorf("faults %+v, want that it is too large", faults)
	}
	n.replace(t)
	n.wants(t, client, web, true, "after its deletion")
}

// TestObjectsWithoutDisk: policies that cannot be kept are in force.
func TestObjectsWithoutDisk(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, other := pod(1, "web"), pod(3, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.replace(t, ofAPI("a", "other", ""))
	if err := n.policies.store.db.Close(); err != nil { // every write fails from now on
		t.Fatal(err)
	}
	n.replace(t, ofAPI("a", "client", ""))
	n.wants(t, other, web, false, "with a disk that refuses")
}

func jsonOf(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestObjectsOfNodes: a policy for nodes is not known here, and concerns no pod. One that selects pods, too, denies.
func TestObjectsOfNodes(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, web)
	n.attach(t, client)
	for _, row := range []struct {
		spec    string
		allowed bool
	}{
		{`"spec":{"nodeSelector":{},"ingress":[{"fromEntities":["cluster"]}],"egressDeny":[{"toEntities":["all"]}]}`, true},
		{`"specs":[{"nodeSelector":{},"ingress":[{}]},{"nodeSelector":{"matchLabels":{"a":"b"}},"egress":[{}]}]`, true},
		{`"spec":{"nodeSelector":{},"endpointSelector":{},"ingress":[{}]}`, false},
	} {
		object := `{"apiVersion":"cilium.io/v2","kind":"CiliumClusterwideNetworkPolicy","metadata":{"name":"host"},` + row.spec + `}`
		if err := n.policies.SetObject(t.Context(), []byte(object)); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
		n.wants(t, client, web, row.allowed, row.spec)
		if faults := n.policies.Faults(); len(faults) != 1 || !strings.Contains(fmt.Sprint(faults[0].Texts), "nodeSelector") {
			t.Errorf("%s: faults %v, want one that names the field", row.spec, faults)
		}
	}
}

// TestListBeforePods: a list of policies that was told is in force before a pod that comes afterwards, also when the
// queue was at something else.
func TestListBeforePods(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, client)
	passed := false // guarded by the kernel
	n.kernel.mu.Lock()
	n.kernel.fits = func(e *engine.Engine) error {
		if _, ok := e.Endpoint(keyOf(web.Spec.Attachment)); ok {
			passed = passed || e.Evaluate(client.Addresses.List()[0], web.Addresses.List()[0], model.TCP, 80).Allowed
		}
		return nil
	}
	n.kernel.mu.Unlock()
	if err := n.queue.view.lock(t.Context()); err != nil { // the queue is at something else
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, n.queue.view.unlock)
	if err := n.policies.ReplaceObjects(t.Context(), model.KindNetworkPolicy, [][]byte{ofAPI("a", "other", "")}); err != nil {
		t.Fatal(err)
	}
	n.attach(t, web)
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	if passed {
		t.Error("the pod is attached before its policy is in force")
	}
}

// TestOtherScope: a CRD of a kind has another scope than Porin expects.
func TestOtherScope(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, web)
	n.attach(t, client)
	cluster := func(namespace string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy",`+
			`"metadata":{"name":"p","namespace":%q},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}},`+
			`"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}}`, namespace)
	}
	for _, ns := range []string{"a", "b"} {
		if err := n.policies.SetObject(t.Context(), cluster(ns)); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"a", "b"} {
		if err := n.policies.RemoveObject(t.Context(), model.PolicyID{Kind: model.KindClusterNetworkPolicy, Namespace: ns, Name: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range n.policies.List() {
		t.Errorf("%s stays", m.Policy.ID)
	}
	if err := n.policies.SetObject(t.Context(), []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"},`+
		`"spec":{"endpointSelector":{},"ingress":[{"fromEndpoints":[{}]}]}}`)); err != nil {
		t.Fatal(err)
	}
	if err := n.policies.RemoveObject(t.Context(), model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Name: "p"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range n.policies.List() {
		t.Errorf("%s stays", m.Policy.ID)
	}
}

// TestDiskFull: a policy of the API that could not be written to the disk is there when a later one can be.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, web)
	n.attach(t, client)
	if err := os.MkdirAll(n.policies.store.path, 0o700); err != nil { // nothing can be written
		t.Fatal(err)
	}
	if err := n.policies.SetObject(t.Context(), ofAPI("a", "other", "")); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	n.wants(t, client, web, false, "with the policy")
	if err := os.Remove(n.policies.store.path); err != nil {
		t.Fatal(err)
	}
	later := strings.ReplaceAll(string(ofAPI("b", "other", "")), `{"app":"web"}`, `{"app":"another"}`)
	if err := n.policies.SetObject(t.Context(), []byte(later)); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	n = servingNode(t, dir) // the API server is away
	n.attach(t, web)
	n.attach(t, client)
	n.flush(t)
	n.wants(t, client, web, false, "after a restart")
}
