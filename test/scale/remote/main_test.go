// Package remote measures the cost of many nodes: for one real agent among simulated nodes, and for other clients of an
// API server with simulated agents.
//
//	simulator --records of nodes, groups of pods--> API server --> porin-agent --> BPF maps <-- the test
//	                                                           --> test/scale/agents
//
// `make scale` has 1,000 nodes with 50 pods each and 200 agents, and prints figures with goals; a plain test has few,
// and compares the maps with the records of the simulator. The API server is one in memory, or a real one.
package remote

import (
	"flag"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/testutil"
)

var (
	nodeCount  = flag.Int("nodes", 20, "simulated nodes")
	podCount   = flag.Int("pods", 16, "pods of each")
	agentCount = flag.Int("agents", 3, "simulated agents")
	groupSize  = flag.Int("group", cluster.GroupSize, "pods of a group, at most as many as agents take")
	ipv4Only   = flag.Bool("ipv4-only", false, "pods have no IPv6 addresses")
	measure    = flag.Bool("measure", false, "print figures, with goals")
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}
