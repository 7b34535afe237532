// Package chaos attaches and detaches containers, many at once, while agents and plugins are killed at random and
// traffic runs through pods that live all the time. Then nothing may be left, no address may have had two owners, no
// packet may be lost, and none may have arrived that a network policy denies. Requests go through the proxy, which is
// within the first node's agent, and porin-proxy on the second, which is killed and replaced, too: none may arrive that
// layer 7 rules deny, and in the end the way into the proxy is removed.
//
//	make chaos                    two minutes
//	make chaos DURATION=1h SEED=7 an hour, with the random choices of seed 7
//	make chaos MODE=multi-pool    addresses from pools of a Kubernetes API, whose three servers are killed, stopped, cut off and
//	                              set back to a backup, too; what all nodes have is compared every second
//
// How threads and packets interleave is not in the seed: it repeats the choices, not the run.
package chaos

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

var (
	duration = flag.Duration("chaos.duration", 20*time.Second, "how long to attach, detach and kill")
	seed     = flag.Uint64("chaos.seed", 0, "of the random choices; 0 takes one from the clock")
	mode     = flag.String("chaos.mode", podCIDR, "where addresses come from: "+podCIDR+" or "+multiPool)
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// atOnce is how many containers come and go at the same time at most, over all nodes.
const atOnce = 32

func TestChaos(t *testing.T) {
	testutil.Root(t)
	if !testutil.Full() {
		t.Skip("at random, for minutes: make chaos")
	}
	if *mode != podCIDR && *mode != multiPool {
		t.Fatalf("mode %q: want %s or %s", *mode, podCIDR, multiPool)
	}
	chance := *seed
	if chance == 0 {
		chance = uint64(time.Now().UnixNano())
	}
	w := newWorld(t, chance, *mode)
	fmt.Printf("chaos: %s, seed %d, %v, %d at once on %d nodes\n", *mode, chance, *duration, len(w.hosts)*len(w.hosts[0].spare), len(w.hosts))
	denied := w.openDenied(t)
	w.serveWeb(t)
	w.restrict(t)
	traffic, requests := w.startTraffic(t), w.openRequests()
	w.run(*duration, denied, requests)
	traffic.stop()
	w.agree(t)
	for _, r := range requests {
		r.works(&w.wrongs)
	}
	w.settle()
	w.endRedirects(t)
	w.counts.print()
	w.enough(t)
	traffic.report(t)
	w.reportRequests(t, requests)
	for _, d := range denied {
		d.report(t)
	}
	w.report(t)
}
