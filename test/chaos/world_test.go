package chaos

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// world is two nodes, their agents, and pods that live all the time: two on the first node, one on the second.
type world struct {
	seed   uint64
	fabric *testutil.Fabric
	hosts  [2]*host
	counts counts
	wrongs wrongs
	owners owners
}

// host is a node, its agent and its runtime.
type host struct {
	*world
	node    *testutil.Node
	agent   *testutil.Agent
	cni     *testutil.CNI
	checker *nodecheck.Checker
	live    []nodecheck.Pod
	spare   []*testutil.Namespace // of the containers that come and go
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{seed: seed, fabric: testutil.NewFabric(t), owners: owners{by: map[netip.Addr]string{}}, wrongs: wrongs{by: map[string][]string{}}}
	for i, pods := range []int{2, 1} {
		w.hosts[i] = w.newHost(t, pods)
	}
	return w
}

func (w *world) newHost(t *testing.T, pods int) *host {
	t.Helper()
	bin := testutil.Build(t)
	h := &host{world: w, node: w.fabric.NewNode(t)}
	// Without a quarantine an address that is freed too early is given out again at once; a doctor that repaired would
	// hide a leak.
	h.agent = h.node.StartAgent(t, bin, "--ipam-pod-cidr="+h.node.PodIPv4.String()+","+h.node.PodIPv6.String(),
		"--ipam-quarantine=0s", "--doctor-repair=false", "--log-level=warn")
	h.cni = h.node.NewCNI(t, testutil.CNIConfig{Bin: bin})
	h.checker = nodecheck.New(t, h.node)
	w.routeTo(t, h.node)
	for range pods {
		c := testutil.NewContainer(t)
		pod, err := nodecheck.PodOf(c, h.cni.MustAdd(t, c))
		if err != nil {
			t.Fatal(err)
		}
		h.live = append(h.live, pod)
	}
	for range atOnce / len(w.hosts) {
		h.spare = append(h.spare, testutil.NetNS(t))
	}
	return h
}

// routeTo makes the fabric know where a node's pods are, as the network of a cluster does.
func (w *world) routeTo(t *testing.T, node *testutil.Node) {
	t.Helper()
	conn := w.fabric.Conn(t)
	var link rtnl.Link
	if err := conn.Do(rtnl.LinkByName(fmt.Sprintf("node%d", node.Number), &link)); err != nil {
		t.Fatal(err)
	}
	err := conn.Do(
		rtnl.AddRoute(rtnl.Route{Dst: node.PodIPv4, Gateway: node.IPv4, Link: link.Index}),
		rtnl.AddRoute(rtnl.Route{Dst: node.PodIPv6, Gateway: node.IPv6, Link: link.Index}),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// run lets everything happen for a while. At its end no plugin runs, and every container has been detached.
func (w *world) run(d time.Duration) {
	var loops, killers sync.WaitGroup
	over, stop := time.Now().Add(d), make(chan struct{})
	for i, h := range w.hosts {
		for j, ns := range h.spare {
			loops.Go(func() { h.comeAndGo(ns, w.source(i, j), over) })
		}
		killers.Go(func() { h.killAgent(w.source(i, -1), stop) })
	}
	loops.Wait()
	close(stop)
	killers.Wait()
}

// settle compares both nodes with what should be there, before and after the pods that lived are detached, too.
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
	findings, err := h.checker.Within(patience, want)
	if err != nil {
		h.wrongs.add("agent does not answer", err.Error())
	}
	for _, f := range findings {
		h.wrongs.add(f.Kind+" "+f.Problem, fmt.Sprintf("%s, %s: %s", h.node.Name, when, f.Name))
	}
}
