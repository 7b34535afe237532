package bench

import (
	"math/rand/v2"
	"testing"

	"porin.dev/porin/internal/testutil"
)

const hostPortRounds = 60

// hostPorts attaches containers with a host port, one at a time, beside ptp with portmap after it.
func hostPorts(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	asked := map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
	node := testutil.NewNode(t)
	systems := []*system{
		porinWith(t, testutil.NewNode(t), "porin", map[string]any{"runtimeConfig": asked}, "--ipam-pod-cidr=10.200.0.0/16", "--ipam-quarantine=0s"),
		newSystem(t, "ptp-portmap", node, plugins,
			map[string]any{"type": "ptp", "ipam": hostLocal(node)},
			map[string]any{"type": "portmap", "backend": "nftables", "runtimeConfig": asked},
		),
	}
	resident := porin(t, "resident", "10.200.0.0/16") // keeps the machine's first clsact: see attach
	resident.call(t, "add", 1, testutil.NewContainer(t))
	all := map[string]*figures{}
	for _, s := range systems {
		all[s.name] = &figures{}
		for range 4 {
			measure(t, s, &figures{}, 1, 1) // warm
		}
	}
	order := rand.New(rand.NewPCG(1, 8080))
	for range hostPortRounds {
		for _, i := range order.Perm(len(systems)) {
			measure(t, systems[i], all[systems[i].name], 1, 1)
		}
	}
	for _, m := range []string{"ADD", "DEL"} {
		name := m + " p50 with a host port"
		for _, s := range systems {
			calls := all[s.name].add.calls
			if m == "DEL" {
				calls = all[s.name].del.calls
			}
			r.add(name, s.name, percentile(calls, 0.5), "ms")
		}
		r.against(name, "ptp-portmap")
		r.atMost(name+", of ptp's with portmap", r.ratio(name, "porin"), 0.3, "")
	}
}
