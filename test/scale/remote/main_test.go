// Package remote measures one real agent among many simulated nodes: what the pods of the others cost it.
//
//	simulator --records of nodes, groups of pods--> API server (in memory) --> porin-agent --> BPF maps <-- the test
//
// `make scale` has 1,000 nodes with 50 pods each and prints figures with goals; a plain test has few, and compares the
// maps with what the simulator has written.
package remote

import (
	"flag"
	"testing"

	"porin.dev/porin/internal/testutil"
)

var (
	nodeCount = flag.Int("nodes", 20, "simulated nodes")
	podCount  = flag.Int("pods", 16, "pods of each")
	ipv4Only  = flag.Bool("ipv4-only", false, "pods have no IPv6 addresses")
	measure   = flag.Bool("measure", false, "print figures, with goals")
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}
