// Package bench measures Porin against the reference CNI plugins and a bare veth pair, interleaved in one run, for
// machines are noisy and a ratio is what can be trusted. It is a module of its own: nothing else needs the plugins.
//
//	sudo make bench               everything, about two minutes
//	sudo make bench ONLY=traffic  one part: attach, hostports, traffic, nodes, proxy (which needs nginx), bandwidth, agent, away, ipam, store, apiserver, kubernetes, kubernetesstore or delegated
//	sudo make bench BASELINE=DIR  also attaches with the binaries of another version, in that folder
package bench

import (
	"os"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) {
	if os.Getenv(envRuntime) != "" {
		os.Exit(runtimeMain())
	}
	if what := os.Getenv(envRelay); what != "" {
		os.Exit(relayMain(what))
	}
	testutil.Main(m, testutil.Binaries())
}

// TestBench prints one table and writes results/bench.json.
func TestBench(t *testing.T) {
	report := newReport()
	t.Run("attach", func(t *testing.T) { attach(t, report) })
	t.Run("hostports", func(t *testing.T) { hostPorts(t, report) })
	t.Run("burst", func(t *testing.T) { burst(t, report) })
	t.Run("traffic", func(t *testing.T) { traffic(t, report) })
	t.Run("nodes", func(t *testing.T) { between(t, report) })
	t.Run("proxy", func(t *testing.T) {
		t.Run("http1", func(t *testing.T) { httpProxies(t, report) })
		t.Run("http2", func(t *testing.T) { http2Proxies(t, report) })
		t.Run("dns", func(t *testing.T) { dnsProxies(t, report) })
		t.Run("idle", func(t *testing.T) { idleProxies(t, report) })
	})
	t.Run("bandwidth", func(t *testing.T) { bandwidth(t, report) })
	t.Run("agent", func(t *testing.T) { agent(t, report) })
	t.Run("away", func(t *testing.T) { away(t, report) })
	t.Run("ipam", func(t *testing.T) { addresses(t, report) })
	t.Run("store", func(t *testing.T) { cluster(t, report) })
	t.Run("apiserver", func(t *testing.T) { pools(t, report) })
	t.Run("kubernetes", func(t *testing.T) { kubernetesPolicies(t, report) })
	t.Run("kubernetesstore", func(t *testing.T) { kubernetesStore(t, report) })
	t.Run("delegated", func(t *testing.T) { delegated(t, report) })
	report.print()
	if err := report.write("results/bench.json"); err != nil {
		t.Error(err)
	}
}
