package bench

import (
	"fmt"
	"testing"
	"time"
)

// A busy node starts its pods together, as after a reboot.
const (
	burstRounds = 5
	burstPods   = 60
)

// burst attaches many pods at once, and shows how much of an ADD is spent in the agent: the rest is the plugin's
// process, and its wait for a processor.
func burst(t *testing.T, r *report) {
	systems := []*system{porin(t, "porin", "10.200.0.0/16"), reference(t, builtPlugins(t), "ptp")}
	all := map[string]*figures{}
	for _, s := range systems {
		all[s.name] = &figures{}
		measure(t, s, &figures{}, burstPods, burstPods) // warm
	}
	var inAgent []time.Duration
	for range burstRounds {
		for _, s := range systems {
			measure(t, s, all[s.name], burstPods, burstPods)
			if s.agent != nil {
				inAgent = append(inAgent, agentTimes(t, s, burstPods)...)
			}
		}
	}
	for _, s := range systems {
		all[s.name].report(r, s.name, burstPods)
	}
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		measure := fmt.Sprintf("ADD %s, %d at once", p.name, burstPods)
		r.against(measure, "ptp")
		r.add(measure+", in the agent", "porin", percentile(inAgent, p.p), "ms")
	}
}

// agentTimes are how long the agent had each of the last n ADDs.
func agentTimes(t *testing.T, s *system, n int) (times []time.Duration) {
	t.Helper()
	for _, add := range addEvents(t, s, n) {
		var sum time.Duration
		for _, phase := range add.Phases {
			if phase.Name != pluginPhase {
				sum += phase.Duration
			}
		}
		times = append(times, sum)
	}
	return times
}
