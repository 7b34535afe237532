// Package bench measures Porin against the reference CNI plugins and a bare veth pair, interleaved in one run, for
// machines are noisy and a ratio is what can be trusted. It is a module of its own: nothing else needs the plugins.
//
//	sudo make bench               everything, about a minute and a half
//	sudo make bench ONLY=traffic  one part: attach, traffic, agent or away
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
	testutil.Main(m, testutil.Binaries())
}

// TestBench prints one table and writes results/bench.json.
func TestBench(t *testing.T) {
	report := newReport()
	t.Run("attach", func(t *testing.T) { attach(t, report) })
	t.Run("traffic", func(t *testing.T) { traffic(t, report) })
	t.Run("agent", func(t *testing.T) { agent(t, report) })
	t.Run("away", func(t *testing.T) { away(t, report) })
	report.print()
	if err := report.write("results/bench.json"); err != nil {
		t.Error(err)
	}
}
