package bench

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// pools measures ADD with addresses of the cluster's pools in a real etcd, and when that etcd has stopped, beside ADD with
// the node's own CIDRs.
func pools(t *testing.T, r *report) {
	etcd := startEtcd(t)
	own := porinWith(t, testutil.NewNode(t), "pod-cidr", nil, "--ipam-pod-cidr=10.200.0.0/16")
	shared := porinWith(t, testutil.NewNode(t), "etcd", nil, "--ipam-mode=multi-pool", "--ipam-default-pool=10.200.0.0/16",
		"--ipam-pre-allocate=512", // of more containers in half a minute than a node has, all addresses rest
		"--store=etcd", "--store-etcd-endpoints="+etcd.endpoint)
	sideBySide(t, r, "with pools in etcd", own.name, own, shared)
	etcd.stop(t)
	stopped := *shared
	stopped.name = "etcd, stopped"
	sideBySide(t, r, "with etcd stopped", own.name, own, &stopped)
	for measure, s := range map[string]*system{"ADD p50, with pools in etcd": shared, "ADD p50, with etcd stopped": &stopped} {
		r.atMost(measure+", of that with own CIDRs", r.value(measure, s.name)/r.value(measure, own.name), 1.1, "")
	}
}

// delegated measures ADD with addresses of host-local beside ptp with the same.
func delegated(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	ptp := reference(t, plugins, "ptp")
	node := testutil.NewNode(t)
	s := porinWith(t, node, "porin-host-local", map[string]any{"ipam": hostLocal(node)}, "--ipam-mode=delegated")
	sideBySide(t, r, "with host-local", ptp.name, ptp, s)
}

// sideBySide attaches and detaches one container of each system after the other, many times.
func sideBySide(t *testing.T, r *report, how, against string, systems ...*system) {
	t.Helper()
	all := map[string]*figures{}
	for _, s := range systems {
		all[s.name] = &figures{}
		measure(t, s, &figures{}, 1, 4) // warm
	}
	for range sequentialRounds {
		for _, s := range systems {
			measure(t, s, all[s.name], 1, 1)
		}
	}
	for _, s := range systems {
		r.add("ADD p50, "+how, s.name, percentile(all[s.name].add.calls, 0.5), "ms")
		r.add("DEL p50, "+how, s.name, percentile(all[s.name].del.calls, 0.5), "ms")
	}
	r.against("ADD p50, "+how, against)
	r.against("DEL p50, "+how, against)
}

// etcd is one of its own process, without a past.
type etcd struct {
	endpoint string
	input    io.Closer // whose end is its end
	cmd      *exec.Cmd
}

func startEtcd(t *testing.T) *etcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command(filepath.Join(testutil.Build(t), "scale"), "etcd", dir)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	e := &etcd{endpoint: "unix://" + filepath.Join(dir, "client"), input: input, cmd: cmd}
	t.Cleanup(func() { e.stop(t) })
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatalf("start etcd: it does not serve: %v", err)
	}
	return e
}

// stop may be called twice.
func (e *etcd) stop(t *testing.T) {
	t.Helper()
	if e.cmd.ProcessState != nil {
		return
	}
	_ = e.input.Close()
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("stop etcd: %v", err)
	}
}
