// Package kubernetes installs Porin in a real cluster, which the scripts of this folder start, and tries it there.
package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	envDir   = "PORIN_KUBERNETES_DIR" // of lib.sh
	envImage = "PORIN_IMAGE"          // the archive of make image
	system   = "kube-system"
)

// manifest and chart are the checkout's, or the release's in the folder PORIN_RELEASE.
var manifest, chart = deployFiles(os.Getenv("PORIN_RELEASE"))

func deployFiles(release string) (manifest, chart string) {
	if release == "" {
		return "../../deploy/porin.yaml", "../../deploy/chart"
	}
	return filepath.Join(release, "porin.yaml"), filepath.Join(release, "porin-"+filepath.Base(release)+".tgz")
}

// The tests run in network, mount and PID namespaces of their own, and so does the cluster: it ends with them.
func TestMain(m *testing.M) {
	if !runTraffic() {
		testutil.Main(m)
	}
}

// cluster is the running cluster. Tests share it.
type cluster struct {
	nodes     []string
	dual      bool
	cni       string
	installed bool
}

var running *cluster

// newCluster returns the running cluster if it has this CNI, or starts another with NODES, PROXY and IPFAMILY of the
// environment.
func newCluster(t *testing.T, cni string) *cluster {
	t.Helper()
	testutil.Root(t)
	if _, err := os.Stat(filepath.Join(os.Getenv(envDir), "images", "e2e.tar")); err != nil {
		t.Skip("needs a cluster: make e2e-kubernetes")
	}
	if running != nil && running.cni == cni {
		return running
	}
	running = nil
	script(t, "down.sh")
	t.Setenv("CNI", cni)
	script(t, "up.sh")
	c := &cluster{cni: cni, dual: os.Getenv("IPFAMILY") == "dual"}
	c.nodes = strings.Fields(c.kubectl(t, "get", "node", "-o", "jsonpath={.items[*].metadata.name}"))
	running = c
	return c
}

func twoNodes(t *testing.T) {
	t.Helper()
	if nodes, err := strconv.Atoi(os.Getenv("NODES")); err != nil || nodes < 2 {
		t.Skip("needs two nodes")
	}
}

// porin returns a cluster with Porin from the manifest.
func porin(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, "none")
	if !c.installed {
		script(t, "images.sh", os.Getenv(envImage))
		c.kubectl(t, "apply", "-f", manifest)
		c.installed = true
	}
	c.ready(t)
	return c
}

// ready waits until agents, proxies and nodes are ready and CoreDNS serves.
func (c *cluster) ready(t *testing.T) {
	t.Helper()
	for _, object := range []string{"daemonset/porin-agent", "daemonset/porin-proxy", "deployment/coredns"} {
		c.kubectl(t, "-n", system, "rollout", "status", object)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=2m")
}

// script runs a script of this folder.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run("", "./"+name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl returns what kubectl prints, and fails the test when it fails or takes more than three minutes.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is kubectl for a caller that waits for its success.
func (*cluster) try(args ...string) (string, error) { return kubectl("", args...) }

// apply creates the objects of a manifest.
func (*cluster) apply(t *testing.T, yaml string) {
	t.Helper()
	if _, err := kubectl(yaml, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// get reads objects as JSON.
func (c *cluster) get(into any, args ...string) error {
	out, err := c.try(append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// namespace creates a namespace, which ends with the test.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	c.kubectl(t, "create", "namespace", name)
	t.Cleanup(func() { c.kubectl(t, "delete", "namespace", name, "--timeout=2m") })
	return name
}

// on runs a command on a node.
func (*cluster) on(node string, command ...string) (string, error) {
	return run("", "./node.sh", append([]string{node}, command...)...)
}

// agent runs a command of porin in the agent's pod on a node.
func (c *cluster) agent(node string, args ...string) (string, error) {
	pod, err := c.try("-n", system, "get", "pod", "-l", "app.kubernetes.io/name=porin-agent", "--field-selector", "spec.nodeName="+node,
		"-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return "", err
	}
	return c.try(append([]string{"-n", system, "exec", pod, "-c", "agent", "--", "/porin"}, args...)...)
}

// binary is a program of build.sh.
func binary(name string) string { return filepath.Join(os.Getenv(envDir), "bin", name) }

func kubectl(stdin string, args ...string) (string, error) {
	state := filepath.Join(os.Getenv(envDir), "run")
	return run(stdin, binary("kubectl"), append([]string{
		"--kubeconfig", filepath.Join(state, "admin.conf"), "--cache-dir", filepath.Join(state, "kubectl"),
	}, args...)...)
}

// commandTimeout bounds each command. Those that wait for objects have shorter bounds of their own, with better
// messages.
const commandTimeout = 3 * time.Minute

func run(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}
