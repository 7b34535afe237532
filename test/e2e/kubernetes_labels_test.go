package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// denied checks that an ADD failed for now, and says which pod is missing.
func denied(t *testing.T, err error, pod string) {
	t.Helper()
	failedAs(t, err, codeTryAgainLater)
	if err != nil && !strings.Contains(err.Error(), pod) {
		t.Errorf("ADD: %v, want %q in it", err, pod)
	}
}

// reaches waits until connections by both families are let through, or are not.
func (r *rig) reaches(from, to pod, want bool) {
	r.Helper()
	for _, addr := range []netip.Addr{to.ipv4, to.ipv6} {
		testutil.Eventually(r, func() error {
			conn, err := connectFrom(from.Namespace, netip.AddrPortFrom(addr, 8080), unreachable)
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != want {
				return fmt.Errorf("connection to %s: %v, want it to be let through: %t", addr, err, want)
			}
			return nil
		})
	}
}

// asPod is a container that the runtime attaches as a pod of Kubernetes.
func asPod(t testing.TB, name, uid string) *testutil.Container {
	c := testutil.NewContainer(t)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", uid}}
	return c
}

const webToDB = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: shop}}}]
    ports: [{port: http}]
`

// TestKubernetesLabels: pods have the labels of the API from their first packet on, also when the watch tells of them
// late, and follow changes of the pod and of its namespace.
func TestKubernetesLabels(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", map[string]string{"team": "shop"})
	api.pod("db", "db")
	r := rigOn(t, node, api.flags...)
	r.applyPolicy(webToDB)
	db := r.named("shop", "db")
	for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
		db.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
	}

	created := time.AfterFunc(time.Second, func() { api.pod("web", "web") })
	defer created.Stop()
	web := r.named("shop", "web") // ADD waits for the pod
	r.reaches(web, db, true)
	api.pod("other", "other")
	other := r.named("shop", "other")
	r.reaches(other, db, false)

	api.pod("web", "other")
	r.reaches(web, db, false)
	api.pod("web", "web")
	r.reaches(web, db, true)
	api.namespace("shop", nil)
	r.reaches(web, db, false)
	api.namespace("shop", map[string]string{"team": "shop"})
	r.reaches(web, db, true)

	if patched := r.cli("endpoint", "label", "pod-name:shop/web", "app=db"); patched.code == 0 || !strings.Contains(patched.err, "kubectl --namespace shop label pod web") {
		t.Errorf("porin endpoint label: %+v", patched)
	}
}

// TestKubernetesUnknownPod: without a pod in the API nothing is attached.
func TestKubernetesUnknownPod(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", nil)
	r := rigOn(t, node, api.flags...)
	_, err := r.cni.Add(asPod(t, "ghost", "u-ghost"))
	denied(t, err, "pod shop/ghost")
	api.pod("late", "late")
	_, err = r.cni.Add(asPod(t, "late", "another-uid"))
	denied(t, err, "pod shop/late")
	api.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "static-a", UID: "of-the-api", Annotations: map[string]string{"kubernetes.io/config.hash": "of-the-kubelet"}},
		Spec:       corev1.PodSpec{NodeName: node.Name},
	})
	r.cni.MustAdd(t, asPod(t, "static-a", "of-the-kubelet"))
}

// TestKubernetesAway: while the API server is away, also when the agent starts, attached pods keep their labels, DEL
// works, and an ADD of a pod that is not known fails.
func TestKubernetesAway(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", map[string]string{"team": "shop"})
	for _, name := range []string{"web", "db", "gone"} {
		api.pod(name, name)
	}
	r := rigOn(t, node, api.flags...)
	r.applyPolicy(webToDB)
	web, db, gone := r.named("shop", "web"), r.named("shop", "db"), r.named("shop", "gone")
	for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
		db.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
	}
	r.reaches(web, db, true)
	r.reaches(gone, db, false)
	api.stop()
	r.agent.Restart(t)
	r.reaches(web, db, true)
	r.reaches(gone, db, false)
	r.cni.MustDel(t, gone.Container)
	_, err := r.cni.Add(asPod(t, "new", "u-new"))
	denied(t, err, "pod shop/new")
	if out := r.cli("status").out; !strings.Contains(out, "NOT read") {
		t.Errorf("porin status does not say that the API server is away:\n%s", out)
	}
	api.pod("new", "web")
	api.listen()
	r.reaches(r.named("shop", "new"), db, true)
}

// TestKubernetesRequests: the agent asks for nothing but its Node and the pods of it, policies, and the metadata of
// namespaces and CRDs, and an attachment costs no request.
func TestKubernetesRequests(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", nil)
	api.pod("web", "web")
	r := rigOn(t, node, api.flags...)
	r.cni.MustDel(t, r.named("shop", "web").Container)
	r.agent.Stop(t)
	counts := map[kubernetestest.Request]int{}
	for _, request := range api.Requests() {
		counts[request]++
	}
	ofNode, own := "spec.nodeName="+node.Name, "metadata.name="+node.Name
	want := map[kubernetestest.Request]int{
		{Verb: "list", Resource: "pods", Selector: ofNode}: 1, {Verb: "watch", Resource: "pods", Selector: ofNode}: 1,
		{Verb: "list", Resource: "nodes", Selector: own}: 1, {Verb: "watch", Resource: "nodes", Selector: own}: 1,
	}
	for _, resource := range []string{"namespaces", "networkpolicies", "customresourcedefinitions"} {
		want[kubernetestest.Request{Verb: "list", Resource: resource}], want[kubernetestest.Request{Verb: "watch", Resource: resource}] = 1, 1
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestKubernetesPolicies: policies of the API are in force before a pod's first packet, change, outlive the agent
// without the API server, and come with their CRD.
func TestKubernetesPolicies(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", map[string]string{"team": "shop"})
	for _, name := range []string{"web", "db", "other"} {
		api.pod(name, name)
	}
	api.policy(webToDB)
	r := rigOn(t, node, api.flags...)
	web, db, other := r.named("shop", "web"), r.named("shop", "db"), r.named("shop", "other")
	for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
		db.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
	}
	reaches := func(fromWeb, fromOther bool) {
		t.Helper()
		r.reaches(web, db, fromWeb)
		r.reaches(other, db, fromOther)
	}
	reaches(true, false)
	api.policy(strings.Replace(webToDB, "{app: web}", "{app: other}", 1))
	reaches(false, true)
	api.policy(strings.Replace(webToDB, "{app: web}", "{app: other}, newSelector: {}", 1))
	reaches(false, false)
	if out := r.cli("policy", "get", "shop/db").out; !strings.Contains(out, "newSelector") || !strings.Contains(out, "Kubernetes") {
		t.Errorf("porin policy get does not say what is not known:\n%s", out)
	}
	testutil.Eventually(t, func() error {
		if !slices.Contains(api.Requests(), kubernetestest.Request{Verb: "create", Resource: "events"}) {
			return errors.New("no Event about the policy")
		}
		return nil
	})
	api.policy(webToDB)
	reaches(true, false)

	api.stop()
	r.agent.Restart(t)
	reaches(true, false)
	api.listen()
	api.Delete("networkpolicies", "shop", "db")
	reaches(true, true)

	api.Serve(kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"}, Kind: "CiliumNetworkPolicy", Namespaced: true})
	api.policy(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: db, namespace: shop}, spec: {endpointSelector: {matchLabels: {app: db}}, ingress: [{fromEndpoints: [{matchLabels: {app: web}}]}]}}`)
	crd := recordstest.Definition("ciliumnetworkpolicies.cilium.io")
	api.Put(crd)
	reaches(true, false)
	api.Delete("customresourcedefinitions", "", "ciliumnetworkpolicies.cilium.io")
	reaches(true, true)
}

// TestKubernetesReferences: a policy that names a Service follows it, also when the agent starts without the API
// server, and only that Service is watched, while the policy is there.
func TestKubernetesReferences(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", nil)
	for _, name := range []string{"web", "db", "other"} {
		api.pod(name, name)
	}
	service := func(app string) {
		api.Put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}}})
	}
	service("db")
	api.Serve(kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"}, Kind: "CiliumNetworkPolicy", Namespaced: true})
	api.Put(recordstest.Definition("ciliumnetworkpolicies.cilium.io"))
	api.policy(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: web, namespace: shop}, spec: {endpointSelector: {matchLabels: {app: web}}, egress: [{toServices: [{k8sService: {serviceName: db}}]}]}}`)
	r := rigOn(t, node, api.flags...)
	web, db, other := r.named("shop", "web"), r.named("shop", "db"), r.named("shop", "other")
	for _, server := range []pod{db, other} {
		for _, addr := range []netip.Addr{server.ipv4, server.ipv6} {
			server.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
		}
	}
	reaches := func(toDB, toOther bool) {
		t.Helper()
		r.reaches(web, db, toDB)
		r.reaches(web, other, toOther)
	}
	reaches(true, false)
	service("other")
	reaches(false, true)
	api.stop()
	r.agent.Restart(t)
	reaches(false, true)
	api.listen()
	service("db")
	reaches(true, false)
	api.Delete("services", "shop", "db")
	reaches(false, false)
	api.Delete("ciliumnetworkpolicies", "shop", "web")
	reaches(true, true)
	service("db")
	for _, request := range api.Requests() {
		if request.Resource == "services" && request.Selector != "metadata.name=db" {
			t.Errorf("%+v, want the Service of the policy alone", request)
		}
	}
}

// TestKubernetesManyLabels: a pod, or a namespace, that gets more labels than Porin takes does not keep the rights of
// its earlier ones.
func TestKubernetesManyLabels(t *testing.T) {
	many := map[string]string{}
	for i := range 300 {
		many[fmt.Sprintf("l%d", i)] = "x"
	}
	for _, row := range []struct {
		name   string
		change func(api *apiServer)
	}{
		{"of the pod", func(api *apiServer) {
			api.Put(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-web", Labels: many}, Spec: corev1.PodSpec{NodeName: api.node.Name, Containers: []corev1.Container{{Name: "a"}}},
			})
		}},
		{"of the namespace", func(api *apiServer) { api.namespace("shop", many) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			node := testutil.NewNode(t)
			api := newAPIServer(t, node)
			api.namespace("shop", map[string]string{"team": "shop"})
			api.pod("db", "db")
			api.pod("web", "web")
			r := rigOn(t, node, api.flags...)
			r.applyPolicy(webToDB)
			db, web := r.named("shop", "db"), r.named("shop", "web")
			for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
				db.Listen(t, netip.AddrPortFrom(addr, 8080))
			}
			r.reaches(web, db, true)
			row.change(api)
			r.reaches(web, db, false)
			api.namespace("shop", map[string]string{"team": "shop"})
			api.pod("web", "web")
			r.reaches(web, db, true)
		})
	}
}
