package bench

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// pools measures ADD with addresses of the cluster's pools in a real etcd, when that etcd hangs, and when it has ended,
// beside ADD with the node's own CIDRs.
func pools(t *testing.T, r *report) {
	etcd := startEtcd(t)
	own := porin(t, "pod-cidr", "10.200.0.0/16")
	shared := porinWith(t, testutil.NewNode(t), "etcd", nil, "--ipam-mode=multi-pool", "--store=etcd", "--store-etcd-endpoints="+etcd.endpoint)
	pool := v1.PoolSpec{Name: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, Quarantine: new(time.Duration(0))}
	if err := shared.agent.Do(http.MethodPut, "/v1/pool/"+pool.Name, pool, nil); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []struct {
		name  string
		begin func(*testing.T)
	}{{"with pools in etcd", func(*testing.T) {}}, {"with etcd hanging", etcd.hang}, {"with etcd ended", etcd.stop}} {
		phase.begin(t)
		sideBySide(t, r, phase.name, own.name, own, shared)
		measure := "ADD p50, " + phase.name
		r.atMost(measure+", of that with own CIDRs", r.value(measure, shared.name)/r.value(measure, own.name), 1.05, "")
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
	order := rand.New(rand.NewPCG(1, uint64(len(systems))))
	for range sequentialRounds {
		for _, i := range order.Perm(len(systems)) { // see attach
			measure(t, systems[i], all[systems[i].name], 1, 1)
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

// hang makes it answer no client, and keep its connections, until stop.
func (e *etcd) hang(t *testing.T) {
	t.Helper()
	if err := e.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatalf("stop etcd for a while: %v", err)
	}
}

// stop may be called twice.
func (e *etcd) stop(t *testing.T) {
	t.Helper()
	if e.cmd.ProcessState != nil {
		return
	}
	_ = e.cmd.Process.Signal(unix.SIGCONT)
	_ = e.input.Close()
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("stop etcd: %v", err)
	}
}
