// Package chaos attaches and detaches containers, many at once, while agents and plugins are killed at random and
// traffic runs through pods that live all the time. Then nothing may be left, no address may have had two owners, and
// no packet may be lost.
//
//	make chaos                    two minutes
//	make chaos DURATION=1h SEED=7 an hour, with the random choices of seed 7
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
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// atOnce is how many containers come and go at the same time, over both nodes.
const atOnce = 32

func TestChaos(t *testing.T) {
	testutil.Root(t)
	chance := *seed
	if chance == 0 {
		chance = uint64(time.Now().UnixNano())
	}
	fmt.Printf("chaos: seed %d, %v, %d at once on 2 nodes\n", chance, *duration, atOnce)
	w := newWorld(t, chance)
	traffic := w.startTraffic(t)
	w.run(*duration)
	traffic.stop()
	w.settle()
	w.counts.print()
	w.counts.enough(t)
	traffic.report(t)
	w.report(t)
}
