package remote

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestConverge has an agent learn of many nodes' pods, and follow while they come and go.
func TestConverge(t *testing.T) { converge(t, newInMemory) }

// TestConvergeAPIServer is the same at a real API server.
func TestConvergeAPIServer(t *testing.T) { converge(t, newReal) }

func converge(t *testing.T, start func(*testing.T, *testutil.Node) server) {
	w := newWorld(t, start)
	s := newSimulator(w.server.backend(t), *nodeCount, *podCount)
	f := &figures{T: t, pods: float64(*nodeCount * *podCount)}
	own := w.classes()
	var before use
	if *measure {
		before = w.use()
		w.agent.Stop(t) // that thousands of nodes come within seconds is no case to be measured
	}
	if err := s.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if *measure {
		w.agent.Start(t)
	}
	w.converged(s, own)
	w.decides(s)
	last := w.follows(s, own, f)
	w.decides(s)
	if *measure {
		w.settles(last)
		f.use("", before, w.use())
	}

	// An agent that goes on from what it knew. Others have changed something meanwhile, and what had changed last, too.
	if _, _, err := s.toggle(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.converged(s, own)
	w.agent.Stop(t)
	for number := range 20 {
		if _, _, err := s.toggle(t.Context(), number); err != nil {
			t.Fatal(err)
		}
	}
	lists := w.server.wholeLists(t)
	w.restarts(s, own, f, "that goes on from peers.db")
	if lists := w.server.wholeLists(t) - lists; lists > 0 {
		t.Errorf("an agent that goes on has listed the endpoints or networks of nodes: %d requests", lists)
	}
	w.decides(s)

	// An agent that knows nothing, but for its own pods and policies.
	w.agent.Stop(t)
	if err := os.Remove(filepath.Join(w.node.Dir, "store", "peers.db")); err != nil {
		t.Fatal(err)
	}
	began := w.restarts(s, own, f, "without peers.db")
	if *measure {
		w.settles(began)
		f.use(" after a start", before, w.use())
	}
	var doctor v1.Doctor
	if err := w.agent.Get("/v1/doctor", &doctor); err != nil || len(doctor.Findings) > 0 || len(doctor.Errors) > 0 {
		t.Errorf("doctor: %v, %+v", err, doctor)
	}
	f.print()
}

// restarts starts an agent, and waits until its maps have all.
func (w *world) restarts(s *simulator, own map[netip.Addr]uint32, f *figures, what string) (began time.Time) {
	w.Helper()
	copyBefore := w.activeCopy()
	began = time.Now()
	w.agent.Start(w.T)
	testutil.Eventually(w, func() error {
		if w.activeCopy() == copyBefore {
			return errors.New("the agent has written no policy yet")
		}
		return nil
	})
	w.converged(s, own)
	f.add("from the start of an agent "+what+" until the maps have all", time.Since(began).Seconds(), 5, "s")
	f.add("processor time of that", w.cpu().Seconds(), 0, "s")
	return began
}

// decides compares what the engine and the kernel say of connections from pods of other nodes with what the policies
// mean.
func (w *world) decides(s *simulator) {
	w.Helper()
	verdicts := map[bool]int{}
	for i := range 40 {
		number, pod := i%len(s.nodes), i/len(s.nodes)
		local := i % localPods
		from := addresses(number, pod)[i%len(addresses(number, pod))]
		x, err := w.api.ExplainPolicy(w.Context(), from.String(), fmt.Sprintf("team-%d/local-%d", local, local), "TCP", 8080)
		want := allowed(deploymentOf(number, pod), local)
		if err != nil || x.Allowed != want || x.Datapath.Differs || x.Datapath.Ingress == nil {
			w.Errorf("from %s to local-%d: %+v, %v, want allowed %t, also by the kernel", from, local, x, err, want)
		}
		verdicts[want]++
	}
	if len(verdicts) != 2 {
		w.Errorf("verdicts %v, want both", verdicts)
	}
}

// converged waits until the active copy has the addresses of the simulator and the node's own, and no other.
func (w *world) converged(s *simulator, own map[netip.Addr]uint32) {
	w.Helper()
	want := s.expected()
	for addr := range own {
		want[addr] = true
	}
	testutil.Eventually(w, func() error {
		began := time.Now()
		got := w.classes()
		if len(got) == len(want) {
			missing := 0
			for addr := range want {
				if _, ok := got[addr]; !ok {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
			return fmt.Errorf("%d addresses are missing", missing)
		}
		time.Sleep(max(10*time.Millisecond, 5*time.Since(began))) // to look takes processor time, and holds up the agent
		return fmt.Errorf("%d addresses, want %d; the agent: %s", len(got), len(want), tail(w.agent.Log()))
	})
}

func tail(text string) string { return text[max(0, len(text)-500):] }

// follows measures what changes cost, and when they are in the map. It returns the time of the last one.
func (w *world) follows(s *simulator, own map[netip.Addr]uint32, f *figures) (last time.Time) {
	w.Helper()
	duration, perSecond := time.Second, 100
	if *measure {
		duration = 20 * time.Second
	}
	seen := w.observe()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	cpu, served, began, changes := w.cpu(), w.served(), time.Now(), 0
	var writes errgroup.Group
	writes.SetLimit(8) // fewer than there are nodes
	for time.Since(began) < duration {
		<-tick.C
		number := changes % *nodeCount
		writes.Go(func() error {
			wrote := time.Now()
			pod, there, err := s.toggle(w.Context(), number)
			if err == nil {
				seen.change(change{addresses(number, pod)[0], there, wrote})
			}
			return err
		})
		changes++
	}
	if err := writes.Wait(); err != nil {
		w.Error(err)
	}
	last = time.Now()
	took := seen.end()
	w.converged(s, own)
	for _, share := range []struct {
		name    string
		percent int
		most    float64
	}{{"median", 50, 50}, {"99 % of them", 99, 500}} {
		f.add(fmt.Sprintf("from a write to the API server until it is in the map, %d a second: %s", changes*int(time.Second)/int(last.Sub(began)), share.name),
			took[len(took)*share.percent/100].Seconds()*1000, share.most, "ms")
	}
	f.add("processor of the agent meanwhile", 100*(w.cpu()-cpu).Seconds()/time.Since(began).Seconds(), 10, "%")
	if served >= 0 {
		f.add("processor of the API server meanwhile, for a change", (w.served()-served).Seconds()*1000/float64(changes), 0, "ms")
	}
	return last
}

// served is the time that the API server has had of processors; -1 if it is in the test's process.
func (w *world) served() time.Duration {
	if w.server.pid() == 0 {
		return -1
	}
	return processor(w.T, w.server.pid())
}

// figures are what was measured.
type figures struct {
	*testing.T
	pods  float64
	lines []string
}

// add notes a figure with its goal; 0 is none.
func (f *figures) add(name string, got, most float64, unit string) {
	line := fmt.Sprintf("%-75s %10.1f %s", name, got, unit)
	if most > 0 {
		line += fmt.Sprintf("   goal: at most %g", most)
		if got > most {
			line += "   MISSED"
		}
	}
	f.lines = append(f.lines, line)
}

// use adds what a remote pod takes.
func (f *figures) use(when string, before, after use) {
	f.add("a remote pod"+when+": maps of policies", (after.maps-before.maps)/f.pods, 200, "B")
	f.add("a remote pod"+when+": heap of the agent", (after.heap-before.heap)/f.pods, 500, "B")
	f.add("a remote pod"+when+": memory of the agent (anonymous, resident)", (after.rss-before.rss)/f.pods, 0, "B")
	f.add("the agent"+when+": resident memory at its peak", after.peak/1e6, 0, "MB")
}

func (f *figures) print() {
	if *measure {
		fmt.Printf("%d nodes with %d pods each, policies: %d, own pods: %d\n%s\n", *nodeCount, *podCount, policyCount, localPods, strings.Join(f.lines, "\n"))
	}
}
