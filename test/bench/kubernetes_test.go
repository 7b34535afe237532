package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
)

const (
	policyPods  = 40
	policies    = 1000 // in force, 25 for each pod
	policyFlips = 100
	// probePause is between two datagrams of a client.
	probePause = 500 * time.Microsecond
	// Of a list that brings many policies at once, while pods are attached.
	listed      = 500
	listedPeers = 50
)

// kubernetesPolicies measures how long a policy takes from its write at the API server to the datapath, and ADDs while
// a list brings many.
func kubernetesPolicies(t *testing.T, r *report) {
	s, server := porinWithAPI(t)
	server.Put(object("v1", "Namespace", "", "shop", map[string]any{}))
	pods := make([]*testutil.Container, policyPods)
	for i := range pods {
		pods[i] = podOf(t, server, s.node.Name, i)
	}
	for i := range policies {
		server.Put(networkPolicy(i, 3))
	}
	addresses := map[*testutil.Container]netip.Addr{}
	for _, c := range pods {
		addresses[c] = s.attach(t, c)[0]
	}
	if n := status(t, s).Policy.Policies; n != policies {
		t.Fatalf("%d policies are in force, want %d", n, policies)
	}
	const measure = "policy from the API server to the datapath, 1,000 in force"
	flips := flipPolicy(t, server, pods[0], pods[1:3], addresses)
	r.add(measure+", p50", "porin", percentile(flips, 0.5), "ms")
	r.add(measure+", p99", "porin", percentile(flips, 0.99), "ms")
	r.atMost(measure+", p50", percentile(flips, 0.5), 100, " ms")

	calm := slowestPolicyStep(t, s, server, func() {})
	busy := slowestPolicyStep(t, s, server, func() { listPolicies(t, s, server) })
	r.add("slowest policy step of an ADD", "porin", calm, "ms")
	r.add("slowest policy step of an ADD, a list brings 500 policies of 50 peers", "porin", busy, "ms")
	r.atMost("ADD waits for others' policies", busy-calm, 100, " ms")
}

// porinWithAPI is an agent with an API server in its node's namespace, whose pods have addresses of the agent's own
// CIDR.
func porinWithAPI(t *testing.T) (*system, *kubernetestest.Server) {
	t.Helper()
	server, node, frontend := startAPI(t)
	return porinWith(t, node, "porin", nil, "--ipam-pod-cidr=10.200.0.0/16", "--ipam-quarantine=0s", "--kubeconfig="+frontend.Kubeconfig), server
}

// startAPI starts an API server in the namespace of a new node.
func startAPI(t *testing.T) (*kubernetestest.Server, *testutil.Node, *kubernetestest.Frontend) {
	t.Helper()
	server, node := newAPI(t), testutil.NewNode(t)
	return server, node, server.ServeIn(t, node.Do, "127.0.0.1:0")
}

// newAPI returns an API server with Porin's kinds.
func newAPI(t *testing.T) *kubernetestest.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	resource := func(group, version, resource, kind string, namespaced bool) kubernetestest.Resource {
		return kubernetestest.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Kind: kind, Namespaced: namespaced,
		}
	}
	resources := []kubernetestest.Resource{
		resource("", "v1", "pods", "Pod", true), resource("", "v1", "namespaces", "Namespace", false),
		resource("", "v1", "nodes", "Node", false), resource("", "v1", "events", "Event", true),
		resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
		resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
	}
	for _, kind := range []string{"PorinNode", "PorinSession", "PorinPool", "PorinBlock", "PorinCluster", "PorinNetwork", "PorinEndpointGroup"} {
		resources = append(resources, resource("porin.dev", "v1alpha1", strings.ToLower(kind)+"s", kind, false))
	}
	server := kubernetestest.New(scheme, resources...)
	server.Put(object("v1", "Namespace", "", "kube-system", map[string]any{}))
	return server
}

func object(version, kind, namespace, name string, fields map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels := fields["labels"]; labels != nil {
		metadata["labels"] = labels
		delete(fields, "labels")
	}
	fields["apiVersion"], fields["kind"], fields["metadata"] = version, kind, metadata
	return fields
}

// podOf is a container that the runtime attaches as a pod of the node, whose label app is its number.
func podOf(t *testing.T, server *kubernetestest.Server, node string, n int) *testutil.Container {
	name := fmt.Sprintf("pod-%d", n)
	pod := object("v1", "Pod", "shop", name, map[string]any{"labels": map[string]any{"app": fmt.Sprint(n)}, "spec": map[string]any{"nodeName": node}})
	pod["metadata"].(map[string]any)["uid"] = "u-" + name
	server.Put(pod)
	return containerOf(t, n)
}

// containerOf is a container that the runtime attaches as a pod, whose number is n.
func containerOf(t *testing.T, n int) *testutil.Container {
	c := testutil.NewContainer(t)
	name := fmt.Sprintf("pod-%d", n)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "u-" + name}}
	return c
}

// networkPolicy is the n-th of many: for one of the pods, with so many blocks as peers beside another pod.
func networkPolicy(n, peers int) map[string]any {
	return ingressPolicy(fmt.Sprintf("policy-%d", n), n%policyPods, networkPolicyPeers(n, peers), 1000+n)
}

func networkPolicyPeers(n, peers int) []any {
	from := []any{map[string]any{"podSelector": matchApp((n + 1) % policyPods)}}
	for i := range peers {
		from = append(from, map[string]any{"ipBlock": map[string]any{"cidr": fmt.Sprintf("172.%d.%d.%d/32", 16+n%16, n/16%256, i)}})
	}
	return from
}

func ingressPolicy(name string, app int, from []any, port int) map[string]any {
	return object("networking.k8s.io/v1", "NetworkPolicy", "shop", name, map[string]any{"spec": map[string]any{
		"podSelector": matchApp(app),
		"ingress":     []any{map[string]any{"from": from, "ports": []any{map[string]any{"port": port, "protocol": "UDP"}}}},
	}})
}

func matchApp(n int) map[string]any {
	return map[string]any{"matchLabels": map[string]any{"app": fmt.Sprint(n)}}
}

// flipPolicy lets one of two clients send to the server's pod, in turns, and returns how long each took from the write
// to the client's first datagram.
func flipPolicy(t *testing.T, server *kubernetestest.Server, to *testutil.Container, clients []*testutil.Container, addresses map[*testutil.Container]netip.Addr) (took []time.Duration) {
	t.Helper()
	const port = 5000
	at := netip.AddrPortFrom(addresses[to], port)
	var inbox *net.UDPConn
	if err := to.Do(func() (err error) { inbox, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err }); err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	stop := make(chan struct{})
	var probes sync.WaitGroup
	defer probes.Wait()
	defer close(stop)
	for _, c := range clients {
		probes.Go(func() { _ = c.Do(func() error { probe(stop, at); return nil }) })
	}
	buffer := make([]byte, 100)
	for i := range policyFlips {
		client := clients[i%2]
		from := []any{map[string]any{"podSelector": matchApp(1 + i%2)}}
		began := time.Now()
		server.Put(ingressPolicy("flip", 0, from, port))
		_ = inbox.SetReadDeadline(began.Add(testutil.Patience))
		for {
			_, sender, err := inbox.ReadFromUDPAddrPort(buffer)
			if err != nil {
				t.Fatalf("flip %d: %v", i, err)
			}
			if sender.Addr().Unmap() == addresses[client] {
				break
			}
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond) // others' datagrams are on the way
	}
	return took
}

// probe sends datagrams, each of a connection of its own.
func probe(stop <-chan struct{}, to netip.AddrPort) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(probePause):
		}
		if c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err == nil {
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
	}
}

// slowestPolicyStep attaches pods, one after the other, during the work and a while afterwards, and returns the longest
// that an ADD was with policy, in ms.
func slowestPolicyStep(t *testing.T, s *system, server *kubernetestest.Server, work func()) float64 {
	t.Helper()
	pods := make([]*testutil.Container, 200)
	for i := range pods {
		pods[i] = podOf(t, server, s.node.Name, policyPods+i)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	ended := false
	attached := 0
	for later := 0; later < 30 && attached < len(pods); attached++ {
		s.attach(t, pods[attached])
		select {
		case <-done:
			ended = true
			later++
		default:
		}
	}
	if !ended {
		t.Errorf("%d ADDs were over before the policies were listed", attached)
		<-done
	}
	var took []time.Duration
	for _, add := range addEvents(t, s, attached) {
		for _, phase := range add.Phases {
			if phase.Name == "policy" {
				took = append(took, phase.Duration)
			}
		}
	}
	s.call(t, "del", 8, pods[:attached]...)
	return percentile(took, 1)
}

// listPolicies has the agent read many new policies in one list, and returns when they are in force.
func listPolicies(t *testing.T, s *system, server *kubernetestest.Server) {
	hold := make(chan struct{})
	server.Fault(func(q kubernetestest.Request) *kubernetestest.Fault {
		if q.Resource == "networkpolicies" {
			return &kubernetestest.Fault{Wait: hold}
		}
		return nil
	})
	server.EndWatches()
	for i := range listed {
		server.Put(networkPolicy(policies+i, listedPeers))
	}
	server.Compact()
	close(hold)
	server.Fault(nil)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		st := status(t, s)
		if st.Policy.Policies >= policies+listed && st.Policy.Error == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d policies are in force after a minute: %s", st.Policy.Policies, strings.TrimSpace(st.Policy.Error))
			return
		}
	}
}
