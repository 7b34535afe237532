package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/deploy"
)

// fakeCluster has a fake agent on each node. A command in a container is the program in this process.
type fakeCluster struct {
	dir    string
	nodes  []fleet.Node
	agents map[string]*fakeAgent // by pod
	broken map[string]string     // pods whose commands hang, are refused or answer nonsense
}

func newFakeCluster(dir string) *fakeCluster {
	return &fakeCluster{dir: dir, agents: map[string]*fakeAgent{}, broken: map[string]string{}}
}

func (c *fakeCluster) add(node string) error {
	pod := fleet.Pod{
		Namespace: "kube-system", Name: "porin-agent-" + node, Node: node, Container: "agent", Image: "0.1.0", Running: true, Ready: true, Created: noon,
	}
	proxy := pod
	proxy.Name, proxy.Container = "porin-proxy-"+node, "proxy"
	a, err := startFakeAgent(c.socket(pod.Name))
	if err != nil {
		return err
	}
	a.node = node
	c.agents[pod.Name] = a
	c.nodes = append(c.nodes, fleet.Node{Name: node, Linux: true, Agents: []fleet.Pod{pod}, Proxies: []fleet.Pod{proxy}})
	return nil
}

func (c *fakeCluster) socket(pod string) string { return filepath.Join(c.dir, pod+".sock") }

func (c *fakeCluster) close() {
	for _, a := range c.agents {
		a.close()
	}
}

// Nodes implements fleet.Cluster.
func (c *fakeCluster) Nodes(context.Context) ([]fleet.Node, error) {
	if len(c.nodes) == 0 {
		return nil, fmt.Errorf("%w: no pod in namespace kube-system", fleet.ErrNoPorin)
	}
	return slices.Clone(c.nodes), nil
}

// NodeOf implements fleet.Cluster.
func (c *fakeCluster) NodeOf(_ context.Context, pod string) (string, error) {
	if pod == "default/web-2" {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-2")
	}
	return map[string]string{"default/web-1": "n1", "192.0.2.1": "n2"}[pod], nil
}

// Objects implements fleet.Cluster.
func (c *fakeCluster) Objects() []string { return []string{"daemonsets", "porinpools"} }

// Object implements fleet.Cluster.
func (c *fakeCluster) Object(_ context.Context, name string) ([]byte, error) {
	if name == "porinpools" {
		return nil, errors.New("list porinpools: forbidden")
	}
	return []byte(`{"items": [{"spec": {"containers": [{"name": "agent", "env": [{"name": "PROXY", "value": "secret-of-env"}]}]}}]}`), nil
}

// Logs implements fleet.Cluster.
func (c *fakeCluster) Logs(_ context.Context, pod fleet.Pod, previous bool) ([]byte, error) {
	return fmt.Appendf(nil, "log of %s, previous: %t\n", pod.Name, previous), nil
}

// Request implements fleet.Cluster. It has the definitions of records.
func (c *fakeCluster) Request(_ context.Context, method, path string, _, into any) error {
	name, ok := strings.CutPrefix(path, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/")
	if !ok || method != http.MethodGet {
		return fmt.Errorf("%s %s: the test has no API server", method, path)
	}
	switch c.broken[name] {
	case "missing-crd":
		return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, name)
	case "old-crd":
		return nil
	}
	for document := range bytes.SplitSeq(deploy.CRDs, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("\n  name: "+name+"\n")) {
			return yaml.Unmarshal(document, into)
		}
	}
	return fmt.Errorf("%s: the test does not know it", path)
}

// Run implements fleet.Cluster.
func (c *fakeCluster) Run(ctx context.Context, pod fleet.Pod, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
	switch c.broken[pod.Name] {
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "refuse":
		return errors.New("dial tcp 192.0.2.2:10250: connect: connection refused")
	case "nonsense":
		_, err := io.WriteString(stdout, "<html>")
		return err
	}
	if command[0] != "porin" {
		return fmt.Errorf("%s: no such program", command[0])
	}
	code := run(ctx, command[1:], environment{
		in: stdin, out: stdout, err: stderr, now: func() time.Time { return noon }, inspect: inspect,
		getenv: func(name string) string { return map[string]string{socketVariable: c.socket(pod.Name)}[name] },
	})
	if code != 0 {
		return &fleet.ExitError{Code: code}
	}
	return nil
}

// dial is the program's way to the cluster. The first agent has the records of the API server.
func (c *fakeCluster) dial(_, _, _ string) (fleet.Cluster, *client.Client, func(), error) {
	if c == nil {
		return nil, nil, nil, usageError{"there is no kubeconfig: want --kubeconfig, or the variable KUBECONFIG, or ~/.kube/config"}
	}
	records := c.socket("none")
	if len(c.nodes) > 0 {
		records = c.socket("porin-agent-" + c.nodes[0].Name)
	}
	cl := client.New(records)
	return c, cl, cl.Close, nil
}

// changeCluster is the verb "cluster": start NODE... | all VERB | hang NODE | refuse NODE | nonsense NODE |
// crash NODE | without-agent NODE | old-crd NAME | missing-crd NAME
func changeCluster(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	if args[0] == "start" {
		if w.cluster != nil {
			w.cluster.close()
		}
		w.cluster = newFakeCluster(ts.MkAbs("."))
		for _, node := range args[1:] {
			ts.Check(w.cluster.add(node))
		}
		return
	}
	if args[0] == "all" {
		for _, a := range w.cluster.agents {
			ts.Check(a.change(args[1]))
		}
		return
	}
	if strings.HasSuffix(args[0], "-crd") {
		w.cluster.broken[args[1]] = args[0]
		return
	}
	i := slices.IndexFunc(w.cluster.nodes, func(n fleet.Node) bool { return n.Name == args[1] })
	n := &w.cluster.nodes[i]
	switch args[0] {
	case "crash":
		n.Agents[0].Running, n.Agents[0].Ready, n.Agents[0].Reason = false, false, "CrashLoopBackOff: back-off 10s restarting failed container"
	case "without-agent":
		n.Agents = nil
	default:
		w.cluster.broken[n.Agents[0].Name] = args[0]
	}
}
