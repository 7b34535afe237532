package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// Rounds alternate between the systems, so that each meets the same noise: in an order by chance, because a deletion
// leaves the kernel work that whoever comes next pays for.
const (
	sequentialRounds = 150
	parallelRounds   = 4
	parallelPer      = 96 // attachments of a round
)

// figures are what one system took.
type figures struct{ add, del operation }

// operation is what ADD or DEL took in all rounds.
type operation struct {
	calls []time.Duration
	wall  time.Duration // with the parallelism of the run
	cpu   time.Duration // plugin and agent, without the kernel's own threads
}

func attach(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	systems := []*system{
		porin(t, "porin", "10.200.0.0/16"), porin(t, "porin-dual-stack", "10.200.0.0/16,fd00:200::/64"),
		reference(t, plugins, "ptp"), reference(t, plugins, "bridge"),
	}
	former := baseline(t, "10.200.0.0/16")
	systems = append(systems, former...)
	for _, s := range systems {
		// A node has pods. The kernel patches its code when the first clsact of the machine comes and when the last one goes
		// (static keys), which takes 0.2 ms.
		s.call(t, "add", 1, testutil.NewContainer(t))
	}
	for _, parallel := range []int{1, 8, 32} {
		all := map[string]*figures{}
		for _, s := range systems {
			all[s.name] = &figures{}
			measure(t, s, &figures{}, parallel, max(parallel, 4)) // warm
		}
		rounds, per := parallelRounds, parallelPer
		if parallel == 1 {
			rounds, per = sequentialRounds, 1
		}
		order := rand.New(rand.NewPCG(1, uint64(parallel)))
		for range rounds {
			for _, i := range order.Perm(len(systems)) {
				measure(t, systems[i], all[systems[i].name], parallel, per)
			}
		}
		for _, s := range systems {
			all[s.name].report(r, s.name, parallel)
			if s.agent != nil && parallel == 1 {
				reportPhases(t, r, s, rounds)
			}
		}
		for _, m := range []string{"ADD p50", "DEL p50", "ADD rate", "DEL rate"} {
			r.against(fmt.Sprintf("%s, %d at once", m, parallel), "ptp")
		}
	}
	ratio := func(measure string) float64 { return r.value(measure, "porin") / r.value(measure, "ptp") }
	r.atMost("ADD p50 of ptp's, 1 at once", ratio("ADD p50, 1 at once"), 0.38, "")
	r.atMost("DEL p50 of ptp's, 1 at once", ratio("DEL p50, 1 at once"), 0.20, "")
	r.atLeast("ADD rate of ptp's, 32 at once", ratio("ADD rate, 32 at once"), 2.8, "")
	for _, s := range former {
		for _, m := range []string{"ADD p50, 1 at once", "DEL p50, 1 at once"} {
			r.atMost(m+", of the baseline's", r.value(m, "porin")/r.value(m, s.name), 1.05, "")
		}
	}
}

// measure attaches n containers, so many at once, and then detaches them. Their namespaces stay until the end of the
// test: the kernel would take them down in the background, on the time of the next measurement.
func measure(t *testing.T, s *system, f *figures, parallel, n int) {
	t.Helper()
	containers := make([]*testutil.Container, n)
	for i := range containers {
		containers[i] = testutil.NewContainer(t)
	}
	f.add.measure(t, s, "add", parallel, containers)
	f.del.measure(t, s, "del", parallel, containers)
}

func (o *operation) measure(t *testing.T, s *system, op string, parallel int, containers []*testutil.Container) {
	t.Helper()
	before := agentCPU(t, s)
	a := s.call(t, op, parallel, containers...)
	o.cpu += a.CPU + agentCPU(t, s) - before
	o.wall += a.Wall
	for _, call := range a.Calls {
		o.calls = append(o.calls, call.Took)
	}
}

func (o *operation) rate() float64 { return float64(len(o.calls)) / o.wall.Seconds() }

func (o *operation) cpuMillis() float64 { return o.cpu.Seconds() * 1e3 / float64(len(o.calls)) }

func (f *figures) report(r *report, system string, parallel int) {
	name := func(m string) string { return fmt.Sprintf("%s, %d at once", m, parallel) }
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}} {
		r.add(name("ADD "+p.name), system, percentile(f.add.calls, p.p), "ms")
		r.add(name("DEL "+p.name), system, percentile(f.del.calls, p.p), "ms")
	}
	r.add(name("ADD rate"), system, f.add.rate(), "1/s")
	r.add(name("DEL rate"), system, f.del.rate(), "1/s")
	r.add(name("ADD CPU"), system, f.add.cpuMillis(), "ms")
	r.add(name("DEL CPU"), system, f.del.cpuMillis(), "ms")
}

// agentCPU is what the system's agent, if it has one, has used.
func agentCPU(t *testing.T, s *system) (sum time.Duration) {
	t.Helper()
	if s.agent == nil {
		return 0
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.agent.PID()))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of the agent: %v", err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			ns, _ := strconv.ParseInt(fields[0], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}
