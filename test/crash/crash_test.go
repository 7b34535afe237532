// Package crash kills the agent, and the plugin, at every effect that they have on the world, and looks each time
// whether anything leaked, was lost, or was given out twice.
//
//	test ── starts ──► launch: installs a seccomp filter, becomes porin-agent or porin-cni
//	  ▲                        │
//	  │   every system call that is not known to change nothing waits here, with its arguments
//	  └────── tracer ◄─────────┘
//	            continue it, or SIGKILL: all effects before this one have happened, and this one and later ones have not
//
// An operation is run with a kill at its first effect, at its second, and so on until it ends without being killed; the
// last time the process is killed right after. So the test has no list of points, and a new effect is a new point.
// `make crash` prints how many there are. It takes three quarters of an hour; `make test` kills at every 96th effect,
// with a random first one.
package crash

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// row is what is interrupted, everywhere.
type row struct {
	name string
	pods int // that live on the node all the time
	of   func(*scene) operation
}

// operations are the operations of a node with CIDRs of its own, the longest first.
var operations = []row{
	{"agent, first start", 0, agentFirstStart},
	{"agent, start that makes the health endpoint", 1, agentHealthStart},
	{"agent, start that makes the tunnel", 1, agentTunnelStart},
	{"agent, start that takes over the tunnel", 1, agentTunnelRestart},
	{"agent, start in another mode than that of the tunnel", 1, agentTunnelSwitch},
	{"agent, start with other sizes of maps", 2, agentResize},
	{"agent, start with three endpoints, a half made one and a deletion record", 3, agentRestore},
	{"agent, start with limits of bandwidth", 3, limited(agentRestore)},
	{"agent, start that removes the health endpoint", 1, agentHealthOff},
	{"agent, start that takes over the health endpoint", 1, agentHealthRestart},
	{"agent, ADD of a pod with an egress policy", 2, confined(agentAdd)},
	{"agent, first policies with layer 7 rules", 2, agentRedirect},
	{"agent, start with layer 7 rules", 2, redirected(agentRestore)},
	{"agent, ADD of a pod with layer 7 rules", 2, redirected(agentAdd)},
	{"agent, DEL of a pod with layer 7 rules", 2, redirected(agentDel)},
	{"agent, ADD of a pod's next container", 2, agentSupersede},
	{"agent, DEL of a pod with an egress policy", 2, confined(agentDel)},
	{"agent, ADD, and once more in the next start", 2, relapsing(agentAdd)},
	{"agent, ADD of a pod's next container, and once more in the next start", 2, relapsing(agentSupersede)},
	{"agent, DEL, and once more in the next start", 2, relapsing(agentDel)},
	{"agent, ADD of a pod with host ports", 2, withHostPorts(agentAdd)},
	{"agent, ADD of a pod's next container, with host ports", 2, withHostPorts(agentSupersede)},
	{"agent, DEL of a pod with host ports", 2, withHostPorts(agentDel)},
	{"agent, deletion of a container with two interfaces", 2, agentBatch},
	{"agent, GC of two attachments", 2, agentGC},
	{"agent, orderly end", 2, agentStop},
	{"plugin, ADD, then DEL", 2, pluginAdd},
	{"plugin, ADD, then a new agent", 2, restarting(pluginAdd)},
	{"plugin, DEL, then DEL", 2, pluginDel},
	{"plugin, DEL, then a new agent", 2, restarting(pluginDel)},
	{"plugin, DEL without an agent, then DEL", 2, again(away(pluginDel))},
	{"plugin, DEL without an agent, then an agent", 2, restarting(away(pluginDel))},
	{"plugin, DEL of a pod with host ports without an agent, then an agent", 2, withHostPorts(restarting(away(pluginDel)))},
	{"plugin, GC of two attachments", 2, pluginGC},
	{"agent, ADD with limits of bandwidth", 2, limited(agentAdd)},
	{"agent, ADD with limits of bandwidth of a pod's next container", 2, limited(agentSupersede)},
	{"agent, DEL with limits of bandwidth", 2, limited(agentDel)},
	{"plugin, ADD with limits of bandwidth, then a new agent", 2, limited(restarting(pluginAdd))},
	{"plugin, DEL with limits of bandwidth without an agent, then an agent", 2, limited(restarting(away(pluginDel)))},
	{"agent, ADD with another IPAM", 2, delegated(agentAdd)},
	{"agent, DEL with another IPAM", 2, delegated(agentDel)},
	{"plugin, ADD with another IPAM, then DEL", 2, delegated(pluginAdd)},
	{"plugin, ADD with another IPAM, then a new agent", 2, delegated(restarting(pluginAdd))},
	{"plugin, DEL with another IPAM, then DEL", 2, delegated(pluginDel)},
	{"plugin, DEL with another IPAM without an agent, then DEL", 2, delegated(again(away(pluginDel)))},
}

func TestCrashMatrix(t *testing.T) {
	testutil.NeedPrograms(t, "ip", "nft")
	var sum tally
	jobs := make(chan func())
	var running sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) { // they wait often: for the kernel, and for its locks
		running.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	sum.run(t, jobs, operations, newScene)
	sum.run(t, jobs, poolOperations, newPoolScene)
	sum.run(t, jobs, otherNodeOperations, newOtherNodesScene)
	sum.run(t, jobs, peerOperations, newPeerScene)
	sum.run(t, jobs, kubernetesOperations, newKubernetesScene)
	close(jobs)
	running.Wait()
	sum.print()
}

// tally counts over all operations.
type tally struct {
	mu                 sync.Mutex // guards the fields below
	points, violations int
}

// run hands out the rows in their order.
func (t *tally) run(test *testing.T, jobs chan<- func(), rows []row, set func(*testing.T, int) *scene) {
	for _, o := range rows {
		jobs <- func() {
			test.Run(o.name, func(test *testing.T) {
				t.add(enumerate(test, o.name, func() *scene { return set(test, o.pods) }, o.of))
			})
		}
	}
}

func (t *tally) add(points, violations int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points += points
	t.violations += violations
}

func (t *tally) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("crash matrix: %d points in all, %d violations\n", t.points, t.violations)
}
