package nodegc_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/nodegc"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
)

const (
	keyA = "aaaaaaaaaa"
	keyB = "bbbbbbbbbb"
)

// world is an API server with records.
type world struct {
	*testing.T
	server *kubernetestest.Server
	cluster.Backend
	gc nodegc.Collector
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, kubeconfig := recordstest.StartServer(t)
	client, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	core, err := client.Core()
	if err != nil {
		t.Fatal(err)
	}
	b := recordstest.Backend(t, kubeconfig)
	nodes := admin.NewNodes(b)
	nodes.RecordDelay = 0
	w := &world{t, server, b, nodegc.Collector{Core: core, Backend: b, Nodes: nodes, Wait: time.Millisecond}}
	if _, err := b.Info.Put(t.Context(), cluster.ClusterInfo{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) node(name, uid string) {
	w.server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}})
}

func (w *world) pod(name, node string) {
	w.server.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}})
}

func must[T any](t *testing.T, item T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// records writes what an agent in multi-pool writes: node, session, network and a block.
func (w *world) records(name, key, uid string, block string) cluster.NodeID {
	w.Helper()
	id := cluster.NodeID{Name: name, Key: key}
	n, err := w.Backend.Nodes.Create(w.Context(), cluster.Node{ID: id, State: cluster.NodeActive, Created: time.Now(), NodeUID: uid})
	must(w.T, n, err)
	s, err := w.Sessions.Put(w.Context(), cluster.Session{Node: id, ID: "s", Boot: "b", Contact: time.Now()})
	must(w.T, s, err)
	w.network(id, uid)
	must(w.T, 0, w.Blocks.Create(w.Context(), cluster.Block{CIDR: netip.MustParsePrefix(block), Pool: "default", PoolUID: "u", Owner: id, Claim: "c", Created: time.Now()}))
	return id
}

func (w *world) network(id cluster.NodeID, uid string) cluster.NodeNetwork {
	w.Helper()
	n, err := w.Networks.Put(w.Context(), cluster.NodeNetwork{
		Node: id, Agent: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Routing: cluster.RoutingNative, NodeUID: uid,
	})
	return must(w.T, n, err)
}

// left lists NAME/KEY of the nodes with records, and of the owners of blocks.
func (w *world) left() (ids []string) {
	w.Helper()
	list, err := w.gc.Nodes.List(w.Context())
	for _, n := range must(w.T, list, err) {
		ids = append(ids, n.Node.ID.String())
	}
	return ids
}

// run checks what a run says, as NAME/KEY OUTCOME, and which nodes have records afterwards.
func (w *world) run(results []string, left ...string) []nodegc.Result {
	w.Helper()
	all, err := w.gc.Run(w.Context())
	var got []string
	for _, r := range must(w.T, all, err) {
		got = append(got, fmt.Sprintf("%s/%s %s", r.Name, r.Key, r.Outcome))
	}
	if !slices.Equal(got, results) {
		w.Errorf("the run says %+v, want %q", all, results)
	}
	if got := w.left(); !slices.Equal(got, left) {
		w.Errorf("records of %q are left, want %q", got, left)
	}
	return all
}

// TestRun has each kind of node: only records of a Node that is gone, and without a pod, are deleted.
func TestRun(t *testing.T) {
	w := newWorld(t)
	w.records("here", keyA, "u1", "10.0.1.0/26")
	w.node("here", "u1")
	w.records("old-agent", keyA, "", "10.0.2.0/26") // which writes no UID
	w.node("old-agent", "u2")
	gone := w.records("gone", keyA, "u3", "10.0.3.0/26")
	w.records("gone-old-agent", keyA, "", "10.0.4.0/26")
	w.records("bound", keyA, "u5", "10.0.5.0/26")
	w.pod("web", "bound")
	w.records("again", keyA, "u6", "10.0.6.0/26") // its agent has not started since
	w.node("again", "u6-new")
	w.pod("db", "again")
	w.records("replaced", keyA, "u7", "10.0.7.0/26")
	w.records("replaced", keyB, "u7-new", "10.0.8.0/26")
	w.node("replaced", "u7-new")
	w.pod("new", "replaced") // a pod of the new Node
	w.network(cluster.NodeID{Name: "cidr", Key: keyA}, "u8")
	w.network(cluster.NodeID{Name: "cidr-again", Key: keyA}, "u9")
	w.node("cidr-again", "u9-new")

	w.server.Put(map[string]any{ // the name of a node with a long name is a hash
		"apiVersion": "porin.dev/v1alpha1", "kind": "PorinNode", "metadata": map[string]any{"name": "unreadable." + keyA}, "spec": map[string]any{"id": 1},
	})

	want := []string{
		"again/" + keyA + " kept", "bound/" + keyA + " kept", "cidr/" + keyA + " deleted", "cidr-again/" + keyA + " kept",
		"gone/" + keyA + " deleted", "gone-old-agent/" + keyA + " deleted", "replaced/" + keyA + " deleted", "unreadable/" + keyA + " kept",
	}
	left := []string{"again/" + keyA, "bound/" + keyA, "cidr-again/" + keyA, "here/" + keyA, "old-agent/" + keyA, "replaced/" + keyB, "unreadable/" + keyA}
	w.gc.DryRun = true
	dry := slices.Clone(want)
	for i := range dry {
		dry[i] = strings.Replace(dry[i], "deleted", "would be deleted", 1)
	}
	w.run(dry, w.left()...)
	w.gc.DryRun = false
	w.server.Requests()
	results := w.run(want, left...)
	if results[1].Reason != "there is no Node, and pod shop/web is bound to it" || results[4].Reason != "there is no Node gone" {
		t.Errorf("results %+v", results)
	}
	if deleted, err := cluster.NodeDeleted(t.Context(), w.Backend, gone); !deleted || err != nil {
		t.Errorf("the record of the cluster does not have the deletion (%v)", err)
	}
	for _, r := range w.server.Requests() {
		if r.Verb == "watch" || r.Resource == "nodes" && r.Verb != "list" || r.Resource == "pods" && (r.Verb != "list" || !strings.HasPrefix(r.Selector, "spec.nodeName=")) {
			t.Errorf("request %+v", r)
		}
	}
	w.run([]string{"again/" + keyA + " kept", "bound/" + keyA + " kept", "cidr-again/" + keyA + " kept", "unreadable/" + keyA + " kept"}, left...)
}

// TestRunPages: a Node on the last page of the list is there.
func TestRunPages(t *testing.T) {
	w := newWorld(t)
	for i := range 1100 {
		w.node(fmt.Sprintf("node%04d", i), fmt.Sprint(i))
	}
	w.records("node1099", keyA, "1099", "10.0.1.0/26")
	w.run(nil, "node1099/"+keyA)
}

// TestRunChangeBetweenRounds: a node whose agent has written since the first round, and one whose Node has come, keep
// their records.
func TestRunChangeBetweenRounds(t *testing.T) {
	w := newWorld(t)
	alive := w.records("alive", keyA, "u1", "10.0.1.0/26")
	w.records("late", keyA, "u2", "10.0.2.0/26")
	lists := 0
	w.server.Fault(func(r kubernetestest.Request) *kubernetestest.Fault {
		if r.Resource != "nodes" {
			return nil
		}
		switch lists++; lists { // each round reads the records before the Nodes
		case 1:
			s, err := w.Sessions.Get(t.Context(), alive)
			if err == nil {
				s.ID = "again"
				_, err = w.Sessions.Put(t.Context(), s)
			}
			if err != nil {
				t.Error(err)
			}
		case 2:
			w.node("late", "u2")
		}
		return nil
	})
	w.run([]string{"alive/" + keyA + " kept"}, "alive/"+keyA, "late/"+keyA)
}

// TestRunConflict: a node whose addresses another node uses is not deleted, as when the folder of an agent was lost on
// a machine that runs. The others are.
func TestRunConflict(t *testing.T) {
	w := newWorld(t)
	used := w.records("one", keyA, "u1", "10.0.1.0/26")
	w.records("two", keyA, "u2", "10.0.2.0/26")
	w.node("one", "u1-new")
	user := w.records("one", keyB, "u1-new", "10.0.3.0/26")
	s, err := w.Sessions.Get(t.Context(), user)
	s = must(t, s, err)
	s.OtherOwners = []string{used.String()}
	s, err = w.Sessions.Put(t.Context(), s)
	must(t, s, err)
	w.run([]string{"one/" + keyA + " failed", "two/" + keyA + " deleted"}, "one/"+keyA, "one/"+keyB)
}

// TestRunRecovery: nothing is deleted while agents write their records again.
func TestRunRecovery(t *testing.T) {
	w := newWorld(t)
	w.records("gone", keyA, "u1", "10.0.1.0/26")
	info, _, err := w.Info.Get(t.Context())
	info = must(t, info, err)
	info.Recovery = &cluster.Recovery{ID: "r", Began: time.Now(), Reason: "test"}
	info, err = w.Info.Put(t.Context(), info)
	must(t, info, err)
	if results, err := w.gc.Run(t.Context()); !errors.Is(err, nodegc.ErrRecovery) || len(results) > 0 {
		t.Errorf("%+v (%v), want %v", results, err, nodegc.ErrRecovery)
	}
	if left := w.left(); len(left) != 1 {
		t.Errorf("records of %q are left", left)
	}
}

// TestRunAPIServerFails: a run that cannot read Nodes or pods deletes nothing.
func TestRunAPIServerFails(t *testing.T) {
	w := newWorld(t)
	w.records("gone", keyA, "u1", "10.0.1.0/26")
	for _, resource := range []string{"nodes", "pods"} {
		for _, round := range []int{1, 2} {
			lists := 0
			w.server.Fault(func(r kubernetestest.Request) *kubernetestest.Fault {
				if r.Resource == resource {
					lists++
				}
				if r.Resource != resource || lists < round {
					return nil
				}
				return &kubernetestest.Fault{Code: 500}
			})
			if results, err := w.gc.Run(t.Context()); err == nil || len(results) > 0 {
				t.Errorf("%s in round %d: %+v (%v), want an error", resource, round, results, err)
			}
		}
	}
	w.server.Fault(nil)
	if left := w.left(); len(left) != 1 {
		t.Errorf("records of %q are left", left)
	}
}

// TestBoundPodAfterEmptyPage: an API server may answer with an empty page before the page with the pod.
func TestBoundPodAfterEmptyPage(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		more, items := "", `{"metadata":{"namespace":"shop","name":"web"}}`
		switch {
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			items = ""
		case r.URL.Query().Get("continue") == "":
			more, items = "more", ""
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, more, items)
	}))
	t.Cleanup(web.Close)
	client, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := newWorld(t)
	if w.gc.Core, err = client.Core(); err != nil {
		t.Fatal(err)
	}
	w.records("node1", keyA, "uid-1", "10.0.1.0/26")
	results, err := w.gc.Run(t.Context())
	if err != nil || len(results) != 1 || results[0].Outcome != nodegc.Kept || !strings.Contains(results[0].Reason, "shop/web") {
		t.Errorf("%+v, %v, want the records kept because of a pod", results, err)
	}
}
