package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// Rounds alternate between the systems, so that each meets the same noise.
const (
	sequentialRounds = 150
	parallelRounds   = 4
	parallelPer      = 96 // attachments of a round
)

// figures are what one system took.
type figures struct {
	add, del       []time.Duration
	addAll, delAll time.Duration // wall time of all rounds, with the parallelism of the run
	addCPU, delCPU time.Duration // plugin and agent; the kernel's own threads are nobody's
	attached       int
}

func attach(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	systems := []*system{
		porin(t, "porin", "10.200.0.0/16"), porin(t, "porin-dual-stack", "10.200.0.0/16,fd00:200::/64"),
		reference(t, plugins, "ptp"), reference(t, plugins, "bridge"),
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
		for range rounds {
			for _, s := range systems {
				measure(t, s, all[s.name], parallel, per)
			}
		}
		for _, s := range systems {
			all[s.name].report(r, s.name, parallel)
		}
		for _, m := range []string{"ADD p50", "DEL p50", "ADD rate", "DEL rate"} {
			r.against(fmt.Sprintf("%s, %d at once", m, parallel), "ptp")
		}
	}
	ratio := func(measure string) float64 { return r.value(measure, "porin") / r.value(measure, "ptp") }
	r.atMost("ADD p50 of ptp's, 1 at once", ratio("ADD p50, 1 at once"), 0.45, "")
	r.atMost("DEL p50 of ptp's, 1 at once", ratio("DEL p50, 1 at once"), 0.25, "")
	r.atLeast("ADD rate of ptp's, 32 at once", ratio("ADD rate, 32 at once"), 2.5, "")
}

// measure attaches n containers, so many at once, and then detaches them. Their namespaces stay until the end of the
// test: the kernel would take them down in the background, on the time of the next measurement.
func measure(t *testing.T, s *system, f *figures, parallel, n int) {
	t.Helper()
	containers := make([]*testutil.Container, n)
	for i := range containers {
		containers[i] = testutil.NewContainer(t)
	}
	wall, cpu := atOnce(t, s, parallel, containers, &f.add, func(c *testutil.Container) (time.Duration, error) {
		_, took, err := s.add(c)
		return took, err
	})
	f.addAll, f.addCPU = f.addAll+wall, f.addCPU+cpu
	wall, cpu = atOnce(t, s, parallel, containers, &f.del, s.del)
	f.delAll, f.delCPU = f.delAll+wall, f.delCPU+cpu
	f.attached += n
}

func atOnce(t *testing.T, s *system, parallel int, containers []*testutil.Container, took *[]time.Duration,
	call func(*testutil.Container) (time.Duration, error),
) (wall, cpu time.Duration) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards took and next
		next int
	)
	before, began := cpuTime(t, s), time.Now()
	for range min(parallel, len(containers)) {
		wg.Go(func() {
			err := s.node.Do(func() error {
				for {
					mu.Lock()
					i := next
					next++
					mu.Unlock()
					if i >= len(containers) {
						return nil
					}
					d, err := call(containers[i])
					if err != nil {
						return err
					}
					mu.Lock()
					*took = append(*took, d)
					mu.Unlock()
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wall, cpu = time.Since(began), cpuTime(t, s)-before
	if t.Failed() {
		t.FailNow()
	}
	return wall, cpu
}

func (f *figures) report(r *report, system string, parallel int) {
	name := func(m string) string { return fmt.Sprintf("%s, %d at once", m, parallel) }
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}} {
		r.add(name("ADD "+p.name), system, percentile(f.add, p.p), "ms")
		r.add(name("DEL "+p.name), system, percentile(f.del, p.p), "ms")
	}
	r.add(name("ADD rate"), system, float64(f.attached)/f.addAll.Seconds(), "1/s")
	r.add(name("DEL rate"), system, float64(f.attached)/f.delAll.Seconds(), "1/s")
	r.add(name("ADD CPU"), system, f.addCPU.Seconds()*1e3/float64(f.attached), "ms")
	r.add(name("DEL CPU"), system, f.delCPU.Seconds()*1e3/float64(f.attached), "ms")
}

// cpuTime is what the plugins, which have all been waited for, and the system's agent have used.
func cpuTime(t *testing.T, s *system) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	sum := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if s.agent == nil {
		return sum
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
