package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: %s}
spec:
  replicas: 0
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`

// The manifest makes nodes ready and CoreDNS serve. A Deployment of 30 pods goes up and down, ten times on a single
// node, and nothing of it is left.
func TestInstall(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	before := c.inventory(t)
	rounds := 10
	if len(c.nodes) > 1 {
		rounds = 1
	}
	for i := range rounds {
		began := time.Now()
		c.scale(t, namespace, 30)
		up := time.Since(began)
		c.scale(t, namespace, 0)
		t.Logf("round %d: 30 pods up in %.1f s, down in %.1f s", i+1, up.Seconds(), (time.Since(began) - up).Seconds())
	}
	c.nothingLeft(t, before)
}

// helm runs Helm with the chart; pools are the values of an installation with a pool.
func (c *cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	args = append(args, "--namespace="+system, "--kubeconfig="+filepath.Join(os.Getenv(envDir), "run", "admin.conf"))
	if out, err := run("", "env", append([]string{"HOME=" + t.TempDir(), os.Getenv("PORIN_HELM")}, args...)...); err != nil {
		t.Fatal(err, out)
	}
}

func (c *cluster) pools() []string {
	pool := "--set=ipam.defaultPool={10.64.0.0/16}"
	if c.dual {
		pool = "--set=ipam.defaultPool={10.64.0.0/16,fd00:64::/64}"
	}
	return []string{"porin", chart, "--set=image.repository=porin.dev/porin,ipam.mode=multi-pool", pool}
}

// newPools starts another cluster for an installation with a pool. It ends with the test, as its kinds and its pool are
// left.
func newPools(t *testing.T, cni string) *cluster {
	t.Helper()
	if os.Getenv("PORIN_HELM") == "" {
		t.Skip("needs Helm: make e2e-kubernetes")
	}
	running = nil
	c := newCluster(t, cni)
	t.Cleanup(func() { running = nil })
	script(t, "images.sh", os.Getenv(envImage))
	return c
}

// TestChart installs Porin with pools by Helm, and removes it by the cleanup: nodes are as before.
func TestChart(t *testing.T) {
	c := newPools(t, "none")
	before := c.networks(t)
	c.helm(t, append([]string{"install"}, c.pools()...)...)
	c.ready(t)
	namespace := c.namespace(t)
	first, last := c.pod(t, namespace, "first", c.nodes[0]), c.pod(t, namespace, "last", c.nodes[len(c.nodes)-1])
	if !strings.HasPrefix(first.address, "10.64.") || !strings.HasPrefix(last.address, "10.64.") {
		t.Errorf("pods have the addresses %s and %s, which are not of the pool", first.address, last.address)
	}
	first.reaches(t, last)
	c.agrees(t)

	c.kubectl(t, "-n", namespace, "delete", "pod", "--all", "--timeout=1m")
	c.kubectl(t, "-n", system, "scale", "deployment/coredns", "--replicas=0")
	c.kubectl(t, "-n", system, "wait", "--for=delete", "pod", "-l", "k8s-app=kube-dns", "--timeout=1m")
	c.helm(t, append([]string{"upgrade", "--set=cleanup.enabled=true"}, c.pools()...)...)
	c.kubectl(t, "-n", system, "rollout", "status", "daemonset/porin-cleanup")
	c.helm(t, "uninstall", "porin")
	c.kubectl(t, "-n", system, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=porin-cleanup", "--timeout=1m")
	c.kubectl(t, "delete", "-f", "../../deploy/chart/templates/crds.yaml")
	if diff := cmp.Diff(before, c.networks(t)); diff != "" {
		t.Errorf("nodes have changed (-before +after):\n%s", diff)
	}
}

// TestMove installs Porin beside the reference plugins, and moves nodes one by one, as docs/cluster.md says: pods of
// both reach each other, and policies hold for Porin's.
func TestMove(t *testing.T) {
	twoNodes(t)
	c := newPools(t, "bridge")
	namespace := c.namespace(t)
	pods := func(name, prefix string) (all []pod) {
		for _, node := range c.nodes {
			p := c.pod(t, namespace, name+"-"+node, node)
			if !strings.HasPrefix(p.address, prefix) {
				t.Fatalf("%s has the address %s, want one of %s", p.name, p.address, prefix)
			}
			p.serve(t)
			all = append(all, p)
		}
		return all
	}
	old := pods("old", "10.244.")
	end := old[0].send(t, old...)
	exclude := "--set=routing=native,agent.extraConfig.masquerade-exclude={10.244.0.0/16}"
	if c.dual {
		exclude = "--set=routing=native,agent.extraConfig.masquerade-exclude={10.244.0.0/16,fd00:10:244::/56}"
	}
	c.helm(t, append([]string{"install", exclude}, c.pools()...)...)
	c.ready(t)
	moved := pods("moved", "10.64.")
	for _, p := range slices.Concat(old, moved) {
		p.send(t, slices.Concat(old, moved)...)().lossless(t)
	}
	c.apply(t, fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-old, namespace: %s}
spec:
  podSelector: {matchLabels: {app: %s}}
  ingress: [{from: [{ipBlock: {cidr: 10.244.0.0/16}}]}]
`, namespace, moved[0].name))
	c.knows(t, "only-old")
	for _, p := range old {
		p.send(t, moved[0])().lossless(t)
	}
	if result := moved[len(moved)-1].send(t, moved[0])(); result.Lines+result.Requests+result.Dials > 0 {
		t.Errorf("a denied pod was answered: %+v", result)
	}
	end().lossless(t)
	for _, node := range c.nodes {
		c.kubectl(t, "drain", node, "--ignore-daemonsets", "--force", "--timeout=2m")
		if _, err := c.on(node, "sh", "-c", "rm /etc/cni/net.d/10-bridge.conflist; ip link delete cni0"); err != nil {
			t.Error(err)
		}
		c.kubectl(t, "uncordon", node)
	}
	c.helm(t, append([]string{"upgrade", "--set=routing=native"}, c.pools()...)...)
	c.ready(t)
	moved = pods("last", "10.64.")
	moved[0].send(t, moved...)().lossless(t)
	c.agrees(t)
}

// networks is what Porin changes on nodes.
func (c *cluster) networks(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, node := range c.nodes {
		out, err := c.on(node, "sh", "-c", "ip -o link | sed 's/@.*//'; ip rule; ip route show table all; ip -6 rule; ip -6 route show table all; nft list tables; "+
			"ls -A /etc/cni/net.d /opt/cni/bin /sys/fs/bpf /var/lib/porin")
		if err != nil {
			t.Fatal(err)
		}
		all[node] = out
	}
	return all
}

// inventory is all that a pod leaves somewhere: files, links and namespaces of nodes, addresses of agents and of the
// API server.
func (c *cluster) inventory(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, node := range c.nodes {
		files, err := c.on(node, "sh", "-c", "ls -d /run/netns/* /run/porin/deletions/* /sys/class/net/* /var/lib/cni/*/* 2>/dev/null")
		if files == "" {
			t.Fatal(err)
		}
		all[node] = slices.DeleteFunc(strings.Fields(files), func(file string) bool { // which are of no pod
			return strings.HasSuffix(file, "/deletions/lock") || strings.HasPrefix(file, "/sys/class/net/porin-l7")
		})
		endpoints, err := c.agent(node, "endpoint", "list")
		if err != nil {
			t.Fatal(err)
		}
		all[node+", endpoints"] = []string{fmt.Sprint(strings.Count(endpoints, "\n"))}
	}
	var groups struct {
		Items []struct {
			Spec struct {
				Endpoints []struct {
					Addresses []string `json:"addresses"`
				} `json:"endpoints"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := c.get(&groups, "porinendpointgroups"); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Items {
		for _, endpoint := range group.Spec.Endpoints {
			all["API server"] = append(all["API server"], endpoint.Addresses...)
		}
	}
	slices.Sort(all["API server"])
	return all
}
