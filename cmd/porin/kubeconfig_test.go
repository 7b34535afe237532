package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
)

// administratorAt runs commands on the records of a cluster. There is no agent.
type administratorAt struct {
	*testing.T
	server     *kubernetestest.Server
	kubeconfig string
	cluster.Backend
}

func newAdministrator(t *testing.T) *administratorAt {
	t.Helper()
	server, kubeconfig := recordstest.StartServer(t)
	return &administratorAt{t, server, kubeconfig, recordstest.Backend(t, kubeconfig)}
}

// porin runs a command, checks its exit code, and returns what it prints.
func (a *administratorAt) porin(code int, args ...string) string {
	a.Helper()
	var text strings.Builder
	got := run(a.Context(), append(args, "--kubeconfig="+a.kubeconfig), environment{
		out: &text, err: &text, getenv: func(string) string { return "" }, dial: dialCluster, now: func() time.Time { return noon },
	})
	if got != code {
		a.Errorf("porin %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, &text)
	}
	return text.String()
}

// says checks that a command ends with the code and prints a text.
func (a *administratorAt) says(code int, want string, args ...string) {
	a.Helper()
	if got := a.porin(code, args...); !strings.Contains(got, want) {
		a.Errorf("porin %s: %s, want %q", strings.Join(args, " "), got, want)
	}
}

// interrupted checks what a command prints that is interrupted.
func (a *administratorAt) interrupted(args ...string) {
	a.Helper()
	ctx, cancel := context.WithCancel(a.Context())
	cancel()
	var text strings.Builder
	run(ctx, append(args, "--kubeconfig="+a.kubeconfig), environment{
		out: &text, err: &text, getenv: func(string) string { return "" }, dial: dialCluster, now: func() time.Time { return noon },
	})
	if text.String() != "porin: wait for the API server: interrupted\n" {
		a.Errorf("an interrupted command prints %q", &text)
	}
}

// TestKubeconfigPools has an administrator manage pools at the API server.
func TestKubeconfigPools(t *testing.T) {
	a := newAdministrator(t)
	a.says(exitNotFound, "no such pool", "cluster", "pool", "get", "blue")
	a.says(exitOK, "10.64.0.0/24", "cluster", "pool", "create", "blue", "--prefix=10.64.0.0/24")
	a.says(exitFailure, "porin pool set changes it", "cluster", "pool", "create", "blue", "--prefix=10.64.0.0/24")
	a.says(exitFailure, "10.64.0.0/24 of pool blue", "cluster", "pool", "create", "red", "--prefix=10.64.0.0/16")
	a.says(exitOK, "0 of 4", "cluster", "pool", "list")
	a.says(exitOK, "10.65.0.0/24", "cluster", "pool", "set", "blue", "--prefix=10.64.0.0/24,10.65.0.0/24")
	a.says(exitUsage, "blocks of pool blue stay", "cluster", "pool", "set", "blue", "--ipv4-block=28")
	if p, err := a.Pools.Get(t.Context(), "blue"); err != nil || len(p.Prefixes) != 2 {
		t.Errorf("pool %+v (%v), want both prefixes", p, err)
	}
	a.says(exitOK, "pool blue deleted", "cluster", "pool", "delete", "blue")
	a.says(exitNotFound, "no such pool", "cluster", "pool", "delete", "blue")
}

// TestKubeconfigNodes has an administrator delete a node and end a recovery at the API server.
func TestKubeconfigNodes(t *testing.T) {
	a := newAdministrator(t)
	id := cluster.NodeID{Name: "one", Key: "aaaaaaaaaa"}
	if _, err := a.Nodes.Create(t.Context(), cluster.Node{ID: id, State: cluster.NodeActive, Created: noon}); err != nil {
		t.Fatal(err)
	}
	info := cluster.ClusterInfo{ID: "x", Recovery: &cluster.Recovery{ID: "r", Began: noon, Reason: "test"}}
	if _, err := a.Info.Put(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	a.says(exitOK, id.Key, "cluster", "node", "list")
	a.says(exitFailure, "one/aaaaaaaaaa", "cluster", "ipam", "recover", "--end")
	a.says(exitFailure, "--machine-is-off", "cluster", "node", "delete", "one")
	other := cluster.NodeNetwork{Node: cluster.NodeID{Name: "one", Key: "bbbbbbbbbb"}} // from when it had prefixes of its own
	if _, err := a.Networks.Put(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	a.says(exitUsage, "node one has 2 incarnations", "cluster", "node", "delete", "one", "--machine-is-off")
	a.says(exitOK, "deleted", "cluster", "node", "delete", "one", "--machine-is-off", "--incarnation", "bbbbbbbbbb")
	a.says(exitOK, "can be claimed when the recovery is over", "cluster", "node", "delete", "one", "--machine-is-off")
	a.says(exitNotFound, "no such node", "cluster", "node", "reset", "one")
	a.says(exitUsage, "run porin ipam recover --begin on a node", "cluster", "ipam", "recover", "--begin")
	a.says(exitOK, "No recovery", "cluster", "ipam", "recover", "--end")
}

// TestKubeconfigFaults: a bad file is told as a bad command line, a failure of the API server with its own words.
func TestKubeconfigFaults(t *testing.T) {
	a := newAdministrator(t)
	a.says(exitUsage, "does not exist", "cluster", "pool", "list", "--context=other")
	a.server.Fault(func(r kubernetestest.Request) *kubernetestest.Fault {
		if r.Verb == "create" {
			return &kubernetestest.Fault{Code: 403}
		}
		return nil
	})
	a.says(exitFailure, "create a PorinPool: fault of the test", "cluster", "pool", "create", "blue", "--prefix=10.64.0.0/24")
	wait := make(chan struct{})
	a.server.Fault(func(kubernetestest.Request) *kubernetestest.Fault { return &kubernetestest.Fault{Wait: wait} })
	a.says(exitUnreachable, "wait for the API server", "cluster", "pool", "list", "--timeout=100ms")
	a.interrupted("cluster", "pool", "list")
	close(wait)
	a.kubeconfig = "/none"
	a.says(exitUsage, "/none", "cluster", "pool", "list")
	a.kubeconfig = ""
	a.says(exitUsage, "there is no kubeconfig", "cluster", "pool", "list")
	t.Setenv("KUBECONFIG", "/nosuch")
	a.says(exitUsage, "/nosuch", "cluster", "pool", "list")
}

// TestNodeGC: the command prints what it deletes and why. Without a kubeconfig it wants one, unless it runs in a pod.
func TestNodeGC(t *testing.T) {
	a := newAdministrator(t)
	if _, err := a.Nodes.Create(t.Context(), cluster.Node{ID: cluster.NodeID{Name: "one", Key: "aaaaaaaaaa"}, State: cluster.NodeActive, Created: noon}); err != nil {
		t.Fatal(err)
	}
	a.says(exitUsage, "--wait", "cluster", "node", "gc", "--wait=-1s")
	a.says(exitOK, "would be deleted  there is no Node one", "cluster", "node", "gc", "--wait=0s", "--dry-run")
	a.says(exitOK, `"outcome": "deleted"`, "cluster", "node", "gc", "--wait=0s", "-o=json")
	a.says(exitOK, "[]", "cluster", "node", "gc", "-o=json") // nothing to wait for
	a.server.Fault(func(r kubernetestest.Request) *kubernetestest.Fault { return &kubernetestest.Fault{Code: 500} })
	a.says(exitFailure, "read", "cluster", "node", "gc", "--wait=0s")
	a.kubeconfig = ""
	a.says(exitUsage, "want --kubeconfig", "cluster", "node", "gc")
}
