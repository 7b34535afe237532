package chaos

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// world is two nodes, or three with a Kubernetes API, their agents, and pods that live all the time: three on the first
// node, one on each other.
type world struct {
	seed   uint64
	api    *api // nil in a mode without
	fabric *testutil.Fabric
	hosts  []*host
	counts counts
	wrongs wrongs
	owners owners

	named     int          // pods that live all the time
	pools     int          // that newPool has made
	fresh     cluster.Pool // the last of them
	favourite atomic.Pointer[favoured]
}

// host is a node, its agent and its runtime.
type host struct {
	*world
	node    *testutil.Node
	bin     string // folder of the binaries
	agent   *testutil.Agent
	cni     *testutil.CNI
	checker *nodecheck.Checker
	live    []nodecheck.Pod
	spare   []*testutil.Namespace // of the containers that come and go

	noGuests [2]*denied    // one a family
	web      [2]*webServer // one a family
	proxies  *proxies      // nil where the proxy is within the agent
}

func newWorld(t *testing.T, seed uint64, mode string) *world {
	t.Helper()
	w := &world{seed: seed, fabric: testutil.NewFabric(t), owners: owners{by: map[netip.Addr]string{}}, wrongs: wrongs{by: map[string][]string{}}}
	pods := []int{3, 1}
	if mode == multiPool {
		w.api, pods = startAPI(t, w.fabric), []int{3, 1, 1}
	}
	for _, n := range pods {
		w.hosts = append(w.hosts, w.newHost(t, n, atOnce/len(pods)))
	}
	return w
}

func (w *world) newHost(t *testing.T, pods, atOnce int) *host {
	t.Helper()
	h := &host{world: w, node: w.fabric.NewNode(t), bin: testutil.Build(t)}
	flags := w.flags(h.node)
	if len(w.hosts) == 1 { // the second node has porin-proxy
		h.startProxies(t)
		flags = append(flags, "--proxy-mode=external", "--proxy-socket="+h.proxySocket())
	}
	h.agent = h.node.StartAgent(t, h.bin, flags...)
	h.cni = h.node.NewCNI(t, testutil.CNIConfig{Bin: h.bin})
	h.checker = nodecheck.New(t, h.node)
	for range pods {
		c := testutil.NewContainer(t)
		name := residentNames[w.named]
		w.named++
		c.Args = h.podOf(residents, name)
		pod, err := nodecheck.PodOf(c, h.cni.MustAdd(t, c))
		if err != nil {
			t.Fatal(err)
		}
		h.label(t, pod, name)
		h.live = append(h.live, pod)
	}
	h.announce(t)
	for range atOnce {
		h.spare = append(h.spare, testutil.NetNS(t))
	}
	return h
}

// announce makes the fabric know where the node's pods are, as the network of a cluster does.
func (h *host) announce(t *testing.T) {
	t.Helper()
	link := h.fabric.Link(t, h.node.Name).Attrs().Index
	for _, prefix := range h.prefixes() {
		gateway := h.node.IPv6
		if prefix.Addr().Is4() {
			gateway = h.node.IPv4
		}
		if err := h.fabric.Netlink(t).RouteAdd(testutil.GatewayRoute(link, prefix, gateway)); err != nil {
			t.Fatal(err)
		}
	}
}

// run lets everything happen for a while. At its end no plugin runs, and every container has been detached.
func (w *world) run(d time.Duration, all []*denied, requests []*request) {
	var loops, killers sync.WaitGroup
	over, stop := time.Now().Add(d), make(chan struct{})
	for i, h := range w.hosts {
		for j, ns := range h.spare {
			loops.Go(func() { h.comeAndGo(ns, w.source(i, j), over) })
		}
		killers.Go(func() { h.killAgent(w.source(i, -1), stop) })
		killers.Go(func() { h.changePolicies(w.source(i, -2), stop) })
		if h.proxies != nil {
			killers.Go(func() { h.proxies.disturb(w.source(i, -3), stop) })
		}
	}
	for _, d := range all {
		if d.conn != nil {
			killers.Go(func() { d.send(&w.wrongs, stop) })
		}
	}
	for i, r := range requests {
		killers.Go(func() { r.run(&w.wrongs, w.source(-2, i), stop) })
	}
	if w.api != nil {
		killers.Go(func() { w.api.disturb(w, w.source(-1, -1), stop) })
		killers.Go(func() { w.compareOwners(stop) })
	}
	loops.Wait()
	close(stop)
	killers.Wait()
}

// settle compares all nodes with what should be there, before and after the pods that lived are detached, too.
func (w *world) settle() {
	for _, h := range w.hosts {
		h.compare("at the end", nodecheck.Want{Live: h.live})
		for _, p := range h.live {
			if err := testutil.Ping(p.Namespace, h.node.IPv4, patience); err != nil {
				w.wrongs.add("unreachable pod", err.Error())
			}
			h.detach(p.Container, nil)
		}
		h.compare("after the last DEL", nodecheck.Want{})
	}
}

func (h *host) compare(when string, want nodecheck.Want) {
	for _, other := range h.hosts {
		if h.api != nil && other != h { // else they know nothing of each other
			want.Peers = append(want.Peers, other.checker)
		}
	}
	findings, err := h.checker.Within(patience, want)
	if err != nil {
		h.wrongs.add("agent does not answer", err.Error())
	}
	for _, f := range findings {
		h.wrongs.add(f.Kind+" "+f.Problem, fmt.Sprintf("%s, %s: %s", h.node.Name, when, f.Name))
	}
}
