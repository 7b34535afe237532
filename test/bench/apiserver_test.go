package bench

import (
	"math/rand/v2"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// pools measures ADD with addresses of the cluster's pools at the API server, when that hangs, and when it has ended,
// beside ADD with the node's own CIDRs.
func pools(t *testing.T, r *report) {
	server, node, frontend := startAPI(t)
	server.Put(object("v1", "Node", "", node.Name, map[string]any{}))
	kubeconfig := "--kubeconfig=" + frontend.Kubeconfig
	createPool(t, node, kubeconfig)
	own := porin(t, "pod-cidr", "10.200.0.0/16")
	shared := porinWith(t, node, "api-server", nil, "--ipam-mode=multi-pool", "--store=kubernetes", kubeconfig)
	for _, phase := range []struct {
		name  string
		begin func()
	}{{"with pools at the API server", func() {}}, {"with the API server hanging", frontend.Hang}, {"with the API server ended", frontend.Stop}} {
		phase.begin()
		sideBySide(t, r, phase.name, own.name, own, shared)
		measure := "ADD p50, " + phase.name
		r.atMost(measure+", of that with own CIDRs", r.value(measure, shared.name)/r.value(measure, own.name), 1.05, "")
	}
}

// delegated measures ADD with addresses of host-local beside ptp with the same.
func delegated(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	ptp := reference(t, plugins, "ptp")
	node := testutil.NewNode(t)
	s := porinWith(t, node, "porin-host-local", map[string]any{"ipam": hostLocal(node)}, "--ipam-mode=delegated")
	sideBySide(t, r, "with host-local", ptp.name, ptp, s)
}

// sideBySide attaches and detaches one container of each system after the other, many times.
func sideBySide(t *testing.T, r *report, how, against string, systems ...*system) {
	t.Helper()
	all := map[string]*figures{}
	for _, s := range systems {
		all[s.name] = &figures{}
		measure(t, s, &figures{}, 1, 4) // warm
	}
	order := rand.New(rand.NewPCG(1, uint64(len(systems))))
	for range sequentialRounds {
		for _, i := range order.Perm(len(systems)) { // see attach
			measure(t, systems[i], all[systems[i].name], 1, 1)
		}
	}
	for _, s := range systems {
		r.add("ADD p50, "+how, s.name, percentile(all[s.name].add.calls, 0.5), "ms")
		r.add("DEL p50, "+how, s.name, percentile(all[s.name].del.calls, 0.5), "ms")
	}
	r.against("ADD p50, "+how, against)
	r.against("DEL p50, "+how, against)
}
