package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// TestAgents has many agents start at once, and lose their API server. It measures what others wait for meanwhile.
func TestAgents(t *testing.T) {
	testutil.Root(t)
	server := startReal(t, testutil.NewFabric(t), nil)
	s := newSimulator(server.backend(t), *nodeCount, *podCount)
	if err := s.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	agents := startAgents(t, server)
	probe := newProbe(t, server)

	number := 0
	phase := func(name string, do func()) answer {
		t.Helper()
		number++ // no phase changes what was changed last before it
		do()
		probe.begin(t)
		served := processor(t, server.PID())
		if _, _, err := s.toggle(t.Context(), number); err != nil {
			t.Fatal(err)
		}
		a := agents.do(t, fmt.Sprint("wait ", s.nodes[number].groups[0].Version))
		waited := probe.end(t)
		report("%-44s %5.0f s, %d pages of lists, restarts %v; API server: %.0f s of processors; others waited for an answer: median %s, 99 %% %s, longest %s (%d requests, %d failed)\n",
			name, a.Seconds, a.Pages, a.Restarts, (processor(t, server.PID()) - served).Seconds(), waited.of(50), waited.of(99), waited.of(100), len(waited.took), waited.failed)
		return a
	}
	phase("without anything on the disk", func() { agents.do(t, "start") })
	if warm := phase("with everything on the disk", func() {
		agents.do(t, "stop")
		agents.do(t, "start")
	}); warm.Pages > 0 {
		t.Errorf("agents that go on from the disk have listed %d pages", warm.Pages)
	}
	const count = 200
	served := processor(t, server.PID())
	for i := range count {
		if _, _, err := s.toggle(t.Context(), i%*nodeCount); err != nil {
			t.Fatal(err)
		}
	}
	agents.do(t, fmt.Sprint("wait ", s.nodes[(count-1)%*nodeCount].groups[0].Version))
	each := (processor(t, server.PID()) - served) / count
	report("a change: %s of the API server's processors, %s for each of %d agents; a group has %d bytes; the API server takes %d MB\n",
		each.Round(100*time.Microsecond), (each / time.Duration(*agentCount)).Round(time.Microsecond), *agentCount, s.bytes(t), memory(t, server.PID())>>20)
	phase("after a restart of the API server", func() {
		server.Stop()
		server.Start(t)
	})
}

func report(format string, args ...any) {
	if *measure {
		fmt.Printf(format, args...)
	}
}

// agents is a process of test/scale/agents.
type agents struct {
	input  io.Writer
	output *bufio.Scanner
}

type answer struct {
	Seconds  float64
	Pages    int64
	Restarts map[string]int
}

// startAgents gives the agents what others leave of the processors: each has a machine of its own, really.
func startAgents(t *testing.T, server *real) *agents {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agents")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "porin.dev/porin/test/scale/agents").CombinedOutput(); err != nil {
		t.Fatalf("build the agents: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", program, server.Agent(t, "node1", "").Kubeconfig, fmt.Sprint(*agentCount))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := server.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	return &agents{input, bufio.NewScanner(output)}
}

func (a *agents) do(t *testing.T, command string) (got answer) {
	t.Helper()
	if _, err := fmt.Fprintln(a.input, command); err != nil {
		t.Fatal(err)
	}
	if !a.output.Scan() {
		t.Fatalf("%s: the agents have ended", command)
	}
	if err := json.Unmarshal(a.output.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// probe is another client of the API server: an account without a priority of its own.
type probe struct {
	client *apiserver.Client

	cancel  context.CancelFunc
	running sync.WaitGroup
	waited  waited
}

type waited struct {
	took   []time.Duration
	failed int
}

// of returns how long this share of requests took at most, in percent.
func (w waited) of(percent int) time.Duration {
	return w.took[(len(w.took)-1)*percent/100].Round(time.Millisecond)
}

const probed = "/api/v1/namespaces/default/configmaps/probe"

func newProbe(t *testing.T, server *real) *probe {
	t.Helper()
	server.admin.Apply(t, strings.TrimSpace(`
{apiVersion: v1, kind: ServiceAccount, metadata: {name: probe, namespace: default}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: probe, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: probe, namespace: default}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: probe, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: probe}
subjects: [{kind: ServiceAccount, name: probe, namespace: default}]
`))
	var token struct{ Status struct{ Token string } }
	err := server.admin.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/probe/token",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}, &token)
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{client: server.Client(token.Status.Token)}
	t.Cleanup(p.client.Close)
	return p
}

// begin makes 20 requests a second, reads and writes in turn, each on its own time.
func (p *probe) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel, p.waited = cancel, waited{}
	var mu sync.Mutex // guards p.waited
	p.running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			p.running.Go(func() {
				began := time.Now()
				var err error
				if i%2 == 0 {
					err = p.client.Do(t.Context(), http.MethodGet, probed, nil, nil)
				} else {
					err = p.client.Patch(t.Context(), probed, apiserver.MergePatch, map[string]any{"data": map[string]string{"turn": fmt.Sprint(i)}})
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					p.waited.failed++
				} else {
					p.waited.took = append(p.waited.took, time.Since(began))
				}
			})
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (p *probe) end(t *testing.T) waited {
	t.Helper()
	p.cancel()
	p.running.Wait()
	if len(p.waited.took) == 0 {
		t.Fatal("no request of others was answered")
	}
	slices.Sort(p.waited.took)
	return p.waited
}
