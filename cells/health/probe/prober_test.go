package probe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/cluster"
)

// run has a prober probe the world until the end of f.
func run(t *testing.T, w *world, cfg Config, f func(p *Prober)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.mu.Lock()
		w.changed = make(chan struct{}) // of the bubble
		w.mu.Unlock()
		p := New(cfg, w, w, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		f(p)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func only(t *testing.T, p *Prober, name string) Result {
	t.Helper()
	for _, r := range p.Nodes() {
		if r.Node.Name == name {
			return r
		}
	}
	t.Fatalf("%s is not among the nodes", name)
	return Result{}
}

func TestProbeAllPaths(t *testing.T) {
	w := newWorld(3)
	run(t, w, DefaultConfig(), func(p *Prober) {
		if r := only(t, p, "node1"); r.Status != Unknown {
			t.Errorf("before the first probe: %s", r.Status)
		}
		time.Sleep(11 * time.Second) // the first round is quicker
		for _, r := range p.Nodes() {
			if r.Status != OK || len(r.Faults) > 0 {
				t.Errorf("%s is %s: %+v", r.Node.Name, r.Status, r.Faults)
			}
			for i, s := range r.States {
				if !s.OK() || s.Latency != time.Millisecond || s.Histogram[3] < 1 || s.Address != Paths()[i].addressOf(node(int(r.Node.Name[4]-'0'))) {
					t.Errorf("%s %v: %+v", r.Node.Name, Paths()[i], s)
				}
			}
		}
		before := only(t, p, "node2").States[0].LastSeen
		time.Sleep(2 * time.Minute)
		if s := only(t, p, "node2").States[0]; !s.LastSeen.After(before) || s.Histogram[3] < 2 || s.Histogram[3] > 4 {
			t.Errorf("two rounds later: %+v", s)
		}
	})
}

func TestProbeFailure(t *testing.T) {
	w := newWorld(2)
	cfg := DefaultConfig()
	run(t, w, cfg, func(p *Prober) {
		time.Sleep(11 * time.Second)
		seen := only(t, p, "node1").States[5].LastSeen
		addr := node(1).Health[1]
		w.fail(addr, HTTP, ErrRefused)
		time.Sleep(2 * cfg.Interval)
		r := only(t, p, "node1")
		s := r.States[5]
		if r.Status != Failing || s.Failures < 1 || !errors.Is(s.Err, ErrRefused) || !s.LastSeen.Equal(seen) {
			t.Errorf("it fails: %s %+v, seen before at %v", r.Status, s, seen)
		}
		if len(r.Faults) != 1 || r.Faults[0].Part != PartResponder {
			t.Errorf("faults %+v", r.Faults)
		}
		w.fail(addr, HTTP, nil)
		time.Sleep(2 * cfg.Interval)
		if r := only(t, p, "node1"); r.Status != OK || r.States[5].Failures != 0 || !r.States[5].LastSeen.After(seen) {
			t.Errorf("it is back: %s %+v", r.Status, r.States[5])
		}
	})
}

// One lost packet is no failure.
func TestProbeTriesTwice(t *testing.T) {
	w := newWorld(1)
	addr := node(0).Addresses[0]
	w.fail(addr, ICMP, context.DeadlineExceeded)
	run(t, w, DefaultConfig(), func(p *Prober) {
		synctest.Wait()
		for w.askedSince(addr, time.Time{}) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		w.fail(addr, ICMP, nil)
		time.Sleep(DefaultConfig().Timeout + time.Second)
		if s := only(t, p, "node0").States[0]; !s.OK() {
			t.Errorf("after a lost packet: %+v", s)
		}
	})
}

// Another agent answers at the address of a node that is gone.
func TestProbeOtherNodeAnswers(t *testing.T) {
	w := newWorld(1)
	w.names[node(0).Health[0]] = "impostor\x1b[2J"
	run(t, w, DefaultConfig(), func(p *Prober) {
		time.Sleep(11 * time.Second)
		r := only(t, p, "node0")
		if s := r.States[4]; !errors.Is(s.Err, ErrOtherNode) || r.Status != Failing || r.Faults[0].Part != PartResponder {
			t.Errorf("%s %+v, faults %+v", r.Status, s, r.Faults)
		}
	})
}

func TestProbeFollowsPeers(t *testing.T) {
	w := newWorld(1)
	run(t, w, DefaultConfig(), func(p *Prober) {
		time.Sleep(20 * time.Second)
		w.set(node(1), node(2))
		time.Sleep(time.Second)
		if all := p.Nodes(); len(all) != 2 || all[0].Status != OK || all[1].Status != OK {
			t.Errorf("a second after nodes have come: %+v", all)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.states) != 2 {
			t.Errorf("%d nodes are remembered, want the 2 that there are", len(p.states))
		}
	})
}

// TestProbeFollowsEndpoint: a node is known before its health endpoint is. Nobody takes it for probed meanwhile for
// long.
func TestProbeFollowsEndpoint(t *testing.T) {
	w := newWorld(0)
	run(t, w, DefaultConfig(), func(p *Prober) {
		time.Sleep(20 * time.Second)
		n := node(0)
		n.Health = nil
		w.set(n)
		time.Sleep(time.Second)
		began := time.Now()
		w.set(node(0))
		time.Sleep(time.Second)
		if s := only(t, p, "node0").States[2]; !s.OK() {
			t.Errorf("a second after the endpoint has come: %+v", s)
		}
		n = node(0)
		n.AgentVersion = "another"
		w.set(n)
		time.Sleep(time.Second)
		if n := w.askedSince(node(0).Addresses[0], began); n != 1 {
			t.Errorf("the node was probed %d times, want once", n)
		}
	})
}

// A node that has other addresses than before is another path.
func TestProbeFollowsAddresses(t *testing.T) {
	w := newWorld(1)
	run(t, w, DefaultConfig(), func(p *Prober) {
		time.Sleep(11 * time.Second)
		n := node(0)
		n.Health = node(9).Health[:1]
		w.set(n)
		w.fail(n.Health[0], ICMP, context.DeadlineExceeded)
		time.Sleep(2 * time.Minute)
		r := only(t, p, "node0")
		if s := r.States[2]; s.Address != n.Health[0] || !s.LastSeen.IsZero() || s.Failures == 0 {
			t.Errorf("the path to the new address: %+v", s)
		}
		if s := r.States[3]; s.Address.IsValid() || s.Probed() {
			t.Errorf("the path to no address: %+v", s)
		}
	})
}

func TestProbeIsSpreadAndBounded(t *testing.T) {
	const nodes = 1000
	w, cfg := newWorld(nodes), DefaultConfig()
	cfg.Parallel = 8
	for i := range nodes { // a partition
		for _, addr := range append(node(i).Addresses, node(i).Health...) {
			w.fail(addr, ICMP, context.DeadlineExceeded)
			w.fail(addr, HTTP, context.DeadlineExceeded)
		}
	}
	run(t, w, cfg, func(p *Prober) {
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if most := cfg.Parallel * pathCount; w.most > most {
			t.Errorf("%d probes at the same time, more than %d", w.most, most)
		}
	})

	w = newWorld(100)
	run(t, w, DefaultConfig(), func(p *Prober) {
		time.Sleep(2 * time.Minute) // into a regular round
		began := time.Now()
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		perSecond := map[int]int{}
		for i := range 100 {
			for _, at := range w.asked[node(i).Addresses[0]] {
				if !at.Before(began) {
					perSecond[int(at.Sub(began)/time.Second)]++
				}
			}
		}
		for second, n := range perSecond {
			if n > 5 {
				t.Errorf("%d nodes were probed in second %d of a round, want 100 spread over 60", n, second)
			}
		}
		if len(perSecond) < 50 {
			t.Errorf("probes in %d seconds of a minute", len(perSecond))
		}
	})
}

// Of many nodes a sample is probed, all have their turn, and what fails comes again each round.
func TestProbeSample(t *testing.T) {
	const nodes = 1000
	w, cfg := newWorld(nodes), DefaultConfig()
	broken := node(17).Addresses[0]
	w.fail(broken, ICMP, ErrRefused)
	run(t, w, cfg, func(p *Prober) {
		rounds := observationRounds(nodes, cfg.Sample)
		time.Sleep(time.Duration(rounds+1) * cfg.Interval)
		for status, n := range p.Counts() {
			if want := map[Status]int{OK: nodes - 1, Failing: 1, Unknown: 0}[status]; n != want {
				t.Errorf("after %d rounds %d nodes are %s, want %d", rounds, n, status, want)
			}
		}
		began := time.Now()
		time.Sleep(5 * cfg.Interval)
		if n := w.askedSince(broken, began); n < 4*tries {
			t.Errorf("the failing node was asked %d times in 5 rounds", n)
		}
		total := 0
		for i := range nodes {
			if i != 17 {
				total += w.askedSince(node(i).Addresses[0], began)
			}
		}
		if most := 5*cfg.Sample + cfg.Sample; total > most {
			t.Errorf("%d nodes were asked in 5 rounds, more than %d", total, most)
		}
	})
}

func TestDiagnose(t *testing.T) {
	const ok, fails, refused = "ok", "fails", "refused"
	for _, row := range []struct {
		name              string
		node, ping, hello string
		routing           cluster.RoutingMode
		want              Part
	}{
		{"all answer", ok, ok, ok, cluster.RoutingNative, ""},
		{"nothing was probed", "", "", "", cluster.RoutingNative, ""},
		{"node is off", fails, fails, fails, cluster.RoutingNative, PartNode},
		{"node is off, by tunnel", fails, fails, fails, "vxlan", PartNode},
		{"node without an endpoint is off", fails, "", "", cluster.RoutingNative, PartNode},
		{"node without an endpoint", ok, "", "", cluster.RoutingNative, ""},
		{"only the endpoint answers", fails, ok, ok, cluster.RoutingNative, PartPolicy},
		{"tunnel", ok, fails, fails, "vxlan", PartTunnel},
		{"endpoint path", ok, fails, fails, cluster.RoutingNative, PartEndpointPath},
		{"endpoint path by the network", ok, fails, fails, cluster.RoutingExternal, PartEndpointPath},
		{"agent does not run", ok, ok, refused, cluster.RoutingNative, PartResponder},
		{"HTTP is dropped", ok, ok, fails, "vxlan", PartPolicy},
		{"ICMP is dropped", ok, fails, ok, cluster.RoutingNative, PartPolicy},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, family := range cluster.Families {
				var states States
				for i, path := range Paths() {
					outcome := map[Path]string{{Node, ICMP, family}: row.node, {Endpoint, ICMP, family}: row.ping, {Endpoint, HTTP, family}: row.hello}[path]
					switch outcome {
					case ok:
						states[i].record(time.Now(), time.Millisecond, nil)
					case fails:
						states[i].record(time.Now(), 0, ErrTimeout)
					case refused:
						states[i].record(time.Now(), 0, ErrRefused)
					}
				}
				faults := Diagnose(cluster.NodeNetwork{Routing: row.routing}, &states)
				if row.want == "" && len(faults) > 0 || row.want != "" && (len(faults) != 1 || faults[0].Part != row.want) {
					t.Errorf("%s: %+v, want %q", family, faults, row.want)
				}
			}
		})
	}
}

// Both families of one part are one fault.
func TestDiagnoseBothFamilies(t *testing.T) {
	var states States
	for i := range states {
		states[i].record(time.Now(), 0, ErrTimeout)
	}
	if faults := Diagnose(node(0), &states); len(faults) != 1 || faults[0].Part != PartNode {
		t.Errorf("%+v", faults)
	}
}
