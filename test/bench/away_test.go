package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/deletionrecords"
	"porin.dev/porin/internal/testutil"
)

const (
	awayRecords = 10_000 // that an agent finds
	awayStarts  = 5
	awayDels    = 200 // that find no agent
)

// away measures what an agent that was away costs: its plugin, and its own next start.
func away(t *testing.T, r *report) {
	awayStart(t, r)
	awayDel(t, r)
}

// awayStart measures a start with the records of containers whose links are gone, less one with nothing to do.
func awayStart(t *testing.T, r *report) {
	node := testutil.NewNode(t)
	agent := node.StartAgent(t, testutil.Build(t), "--ipam-pod-cidr=10.200.0.0/16", "--max-endpoints=16384", "--log-level=warn")
	var empty []time.Duration
	for range awayStarts {
		agent.Restart(t)
		empty = append(empty, agent.Started)
	}
	agent.End()
	if err := os.RemoveAll(node.StateDir); err != nil {
		t.Fatal(err)
	}
	fill(t, node)
	agent.Start(t)
	workedOff(t, agent)
	slices.Sort(empty)
	base := empty[len(empty)/2]
	r.add("start with nothing to do", "porin", base.Seconds(), "s")
	r.add("start with 10,000 deletion records", "porin", agent.Started.Seconds(), "s")
	r.atMost("10,000 deletion records worked off", (agent.Started - base).Seconds(), 2, " s")
}

// fill makes a ledger of the node's network namespace, and a deletion record for each attachment that is in it.
func fill(t *testing.T, node *testutil.Node) {
	t.Helper()
	program := filepath.Join(testutil.Build(t), "fill")
	var out []byte
	err := node.Do(func() (err error) {
		out, err = exec.Command(program, node.StateDir, fmt.Sprint(awayRecords)).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("fill the ledger (run make bench): %v\n%s", err, out)
	}
	queue, err := deletionrecords.Begin(filepath.Join(node.StateDir, "deletions"))
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= awayRecords; i++ {
		err := queue.Put(deletionrecords.Record{ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0", Network: "porin", Began: now.Nano()})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// workedOff checks that the agent had all that work, and did it before it was ready.
func workedOff(t *testing.T, agent *testutil.Agent) {
	t.Helper()
	var status v1.Status
	if err := agent.Get("/v1/status", &status); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(agent.Node.StateDir, "deletions", "*.delete"))
	if err != nil || len(left) > 0 || len(status.Endpoints) > 0 || status.Restored.Undone != awayRecords {
		t.Errorf("%d records are left, %v; endpoints %v; %d undone, want %d",
			len(left), err, status.Endpoints, status.Restored.Undone, awayRecords)
	}
}

// awayDel measures DEL without an agent, and beside it what the kernel alone takes to delete such a link.
func awayDel(t *testing.T, r *report) {
	s := porin(t, "porin", "10.200.0.0/16,fd00:200::/64")
	containers := make([]*testutil.Container, awayDels)
	for i := range containers {
		containers[i] = testutil.NewContainer(t)
	}
	s.call(t, "add", 1, containers...)
	s.agent.End()
	var dels []time.Duration
	for _, call := range s.call(t, "del", 1, containers...).Calls {
		dels = append(dels, call.Took)
	}
	const measure = "DEL without an agent"
	bare := bareDeletions(t, s.node, containers)
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		r.add(measure+" "+p.name, "porin", percentile(dels, p.p), "ms")
		r.add(measure+" "+p.name, "RTM_DELLINK alone", percentile(bare, p.p), "ms")
		r.against(measure+" "+p.name, "RTM_DELLINK alone")
	}
	r.atMost(measure+", p99", r.value(measure+" p99", "porin"), 60, " ms")
	s.agent.Start(t) // which works the records off
}

// bareDeletions is the time of the system call that deletes a veth pair whose ends are up, one after the other.
func bareDeletions(t *testing.T, node *testutil.Node, containers []*testutil.Container) (took []time.Duration) {
	t.Helper()
	handle := node.Netlink(t)
	for i, c := range containers {
		link, err := node.AddVeth(testutil.Veth{Name: fmt.Sprintf("bare%d", i), Peer: c.Namespace, PeerName: "bare"})
		if err == nil {
			err = c.Netlink(t).LinkSetUp(testutil.LinkAt(link.Attrs().ParentIndex))
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := handle.LinkDel(link); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}
