package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	benchPods   = 110
	benchRounds = 3
	firstRounds = 5
	benchIdle   = time.Minute
)

// measured is what one plugin needs on one node.
type measured struct {
	ready       []time.Duration // until all pods are, of each round
	add         []time.Duration // as the container runtime sees it, all plugins of a chain together
	first       []time.Duration // until the first pod of a new node is ready
	agentMemory string          // with all pods
	agentTime   time.Duration   // the processor's, in benchIdle
}

func (m measured) readyMedian() time.Duration { return quantile(m.ready, 0.5) }

func quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// TestBench compares Porin with the reference plugins bridge, host-local and portmap, each in a cluster of one node.
func TestBench(t *testing.T) {
	timed := os.Getenv("PORIN_TIMED")
	if timed == "" {
		t.Skip("a benchmark: make bench-kubernetes")
	}
	var reference, own measured
	t.Run("bridge", func(t *testing.T) { reference = newCluster(t, "bridge").measure(t, timed, "bridge", "portmap") })
	t.Run("porin", func(t *testing.T) {
		c := newCluster(t, "none")
		first := c.firstPods(t)
		own = c.measure(t, timed, "porin-cni")
		own.first = first
	})
	if t.Failed() {
		return
	}
	t.Logf("%d pods on one node, %d rounds      bridge      Porin      ratio", benchPods, benchRounds)
	row := func(name string, reference, own time.Duration) {
		t.Logf("%-36s %9s  %9s  %9.2f", name, reference.Round(10*time.Microsecond), own.Round(10*time.Microsecond), float64(own)/float64(reference))
	}
	row("all pods ready, median", reference.readyMedian(), own.readyMedian())
	row("ADD, p50", quantile(reference.add, 0.5), quantile(own.add, 0.5))
	row("ADD, p99", quantile(reference.add, 0.99), quantile(own.add, 0.99))
	t.Logf("from a new node's start to its first pod: median %s, longest %s of %d", quantile(own.first, 0.5).Round(10*time.Millisecond),
		slices.Max(own.first).Round(10*time.Millisecond), len(own.first))
	t.Logf("the agent with %d pods: %s; processor time in an idle minute: %s", benchPods, own.agentMemory, own.agentTime.Round(time.Millisecond))
}

// firstPods returns how long the first pod of a new node waits after the node's start, in several rounds. The node has
// the image, and the cluster Porin's objects.
func (c *cluster) firstPods(t *testing.T) (all []time.Duration) {
	t.Helper()
	script(t, "images.sh", os.Getenv(envImage))
	c.kubectl(t, "apply", "-f", manifest)
	c.installed = true
	c.ready(t)
	node := c.nodes[0]
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			PodCIDR  string   `json:"podCIDR"`
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"spec"`
	}
	if err := c.get(&object, "node", node); err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(os.Getenv(envDir), "run", "nodes", node)
	for range firstRounds {
		script(t, "daemon.sh", "power_off", node)
		c.kubectl(t, "delete", "node", node)
		c.kubectl(t, "delete", "pod", "--all-namespaces", "--all", "--force", "--grace-period=0")
		for _, path := range []string{"etc/cni/net.d/05-porin.conflist", "opt/cni/bin/porin-cni", "var/lib/porin/*"} {
			files, _ := filepath.Glob(filepath.Join(root, path))
			for _, file := range files {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.apply(t, string(manifest))
		c.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: default}
spec:
  nodeName: %s
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`, node))
		began := time.Now()
		c.powerOn(t, node)
		c.kubectl(t, "wait", "--for=condition=Ready", "pod/first", "--timeout=2m")
		all = append(all, time.Since(began))
	}
	c.kubectl(t, "delete", "pod", "first", "--timeout=1m")
	c.ready(t)
	return all
}

func (c *cluster) measure(t *testing.T, timed string, plugins ...string) (m measured) {
	t.Helper()
	node := c.nodes[0]
	for _, plugin := range plugins {
		if _, err := c.on(node, "sh", "-c", `cd /opt/cni/bin && mv "$1" "$1.real" && cp "$2" "$1"`, "sh", plugin, timed); err != nil {
			t.Fatal(err)
		}
	}
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	for i := range benchRounds {
		began := time.Now()
		c.scale(t, namespace, benchPods)
		m.ready = append(m.ready, time.Since(began))
		if i == benchRounds-1 && plugins[0] == "porin-cni" {
			m.agentMemory = c.agentMemory(t, node)
		}
		c.scale(t, namespace, 0)
	}
	m.add = c.addTimes(t, node)
	if len(m.add) < benchRounds*benchPods {
		t.Fatalf("%d ADDs were timed, want %d", len(m.add), benchRounds*benchPods)
	}
	if plugins[0] == "porin-cni" {
		before := c.agentTime(t, node)
		time.Sleep(benchIdle) // which is measured
		m.agentTime = c.agentTime(t, node) - before
	}
	return m
}

// addTimes are the ADDs that the plugins timed, each with all plugins of its chain.
func (c *cluster) addTimes(t *testing.T, node string) (all []time.Duration) {
	t.Helper()
	text, err := c.on(node, "cat", "/var/log/cni-times")
	if err != nil {
		t.Fatal(err)
	}
	byContainer := map[string]time.Duration{}
	for line := range strings.Lines(text) {
		var command, container string
		var took time.Duration
		if _, err := fmt.Sscan(line, &command, &container, &took); err == nil && command == "ADD" {
			byContainer[container] += took
		}
	}
	for _, took := range byContainer {
		all = append(all, took)
	}
	return all
}

// agentMemory is the agent's resident memory, and its anonymous part.
func (c *cluster) agentMemory(t *testing.T, node string) string {
	t.Helper()
	status, err := c.on(node, "sh", "-c", "grep -E '^(VmRSS|RssAnon):' /proc/$(pidof porin-agent)/status")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := c.on(node, "sh", "-c", "cat /proc/$(pidof porin-agent)/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for line := range strings.Lines(maps) {
		n := 0
		if _, err := fmt.Sscanf(line, "memlock:\t%d", &n); err == nil {
			bytes += n
		}
	}
	return strings.Join(strings.Fields(status), " ") + fmt.Sprintf(", BPF maps and programs %d kB", bytes/1024)
}

// agentTime is the processor time that the agent has used.
func (c *cluster) agentTime(t *testing.T, node string) time.Duration {
	t.Helper()
	text, err := c.on(node, "sh", "-c", "cat /proc/$(pidof porin-agent)/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, system int64
	if _, after, ok := strings.Cut(text, ") "); ok {
		fields := strings.Fields(after)
		_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ
}
