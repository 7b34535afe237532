package policy

import (
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// world is a node with an agent, and all peers of a test.
type world struct {
	*testing.T
	node     *testutil.Node
	api      *client.Client
	ends     map[string]*end // by name
	services []service
}

// end is a pod, the node, or a host outside.
type end struct {
	*testutil.Namespace
	name       string
	ipv4, ipv6 netip.Addr
	endpoint   string // how the API calls it; empty: no pod
}

func (e *end) addr(six bool) netip.Addr {
	if six {
		return e.ipv6
	}
	return e.ipv4
}

// podSpec is a pod, as Kubernetes knows it.
type podSpec struct {
	namespace, name         string
	labels, namespaceLabels map[string]string
	ports                   []v1.NamedPort
}

func newWorld(t *testing.T, pods []podSpec) *world {
	t.Helper()
	testutil.Root(t)
	w := &world{T: t, node: testutil.NewNode(t), ends: map[string]*end{}}
	w.node.StartAgent(t, testutil.Build(t))
	w.node.Fabric.RoutePods(t, w.node)
	w.api = client.New(w.node.Socket)
	t.Cleanup(w.api.Close)
	w.ends["node"] = &end{Namespace: w.node.Namespace, name: "node", ipv4: w.node.IPv4, ipv6: w.node.IPv6}
	for i, p := range pods {
		if i%2 == 0 {
			w.create(p)
		} else {
			w.attach(p)
		}
	}
	return w
}

// create makes an endpoint with labels.
func (w *world) create(p podSpec) {
	w.Helper()
	c := testutil.NewContainer(w)
	ep, err := w.api.CreateEndpoint(w.Context(), c.ID, c.IfName, c.File(), v1.EndpointRequest{
		Network: "porin", Pod: v1.Pod{Namespace: p.namespace, Name: p.name}, NetNS: c.Path(),
		Labels: p.labels, NamespaceLabels: p.namespaceLabels, NamedPorts: p.ports,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.add(p, c, ep)
}

// attach makes an endpoint as a container runtime does, and gives it labels afterwards.
func (w *world) attach(p podSpec) {
	w.Helper()
	c := testutil.NewContainer(w)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.namespace}, {"K8S_POD_NAME", p.name}}
	w.node.NewCNI(w, testutil.CNIConfig{Bin: testutil.Build(w)}).MustAdd(w, c)
	patch := v1.EndpointPatch{Labels: p.labels, NamespaceLabels: p.namespaceLabels, NamedPorts: p.ports}
	ep, err := w.api.UpdateEndpoint(w.Context(), "container-id:"+c.ID, patch)
	if err != nil {
		w.Fatal(err)
	}
	w.add(p, c, ep)
}

// add makes the pod known by its name, which no other may have.
func (w *world) add(p podSpec, c *testutil.Container, ep v1.Endpoint) {
	w.Helper()
	if w.ends[p.name] != nil {
		w.Fatalf("two are called %q", p.name)
	}
	w.ends[p.name] = &end{
		Namespace: c.Namespace, name: p.name, endpoint: "container-id:" + c.ID, ipv4: ep.Addresses.IPv4, ipv6: ep.Addresses.IPv6,
	}
}

// outside adds a host of the network that the node is in.
func (w *world) outside(name, ipv4, ipv6 string) {
	w.Helper()
	e := &end{Namespace: w.node.Fabric.Namespace, name: name, ipv4: netip.MustParseAddr(ipv4), ipv6: netip.MustParseAddr(ipv6)}
	for _, addr := range []netip.Addr{e.ipv4, e.ipv6} {
		if err := e.Netlink(w).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(addr, addr.BitLen()))); err != nil {
			w.Fatal(err)
		}
	}
	w.ends[name] = e
}

func (w *world) end(name string) *end {
	w.Helper()
	e, ok := w.ends[name]
	if !ok {
		w.Fatalf("nobody is called %q", name)
	}
	return e
}

// apply makes these manifests all the policies that there are.
func (w *world) apply(manifests string) {
	w.Helper()
	old, err := w.api.Policies(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range old {
		if err := w.api.DeletePolicy(w.Context(), p.Kind, p.Namespace, p.Name); err != nil {
			w.Fatal(err)
		}
	}
	if manifests == "" {
		return
	}
	if _, err := w.api.PutPolicies(w.Context(), []byte(manifests)); err != nil {
		w.Fatalf("%v\n%s", err, manifests)
	}
}

// traffic is what the agent counts of a pod.
func (w *world) traffic(e *end) (counted v1.Traffic) {
	w.Helper()
	if e.endpoint == "" {
		return counted
	}
	ep, err := w.api.Endpoint(w.Context(), e.endpoint)
	if err != nil {
		w.Fatal(err)
	}
	if ep.Traffic == nil {
		w.Fatalf("the agent counts nothing of %s", e.name)
	}
	return *ep.Traffic
}
