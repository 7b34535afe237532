package kubernetes

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	benchPods   = 110
	benchRounds = 3
	benchIdle   = time.Minute
)

// measured is what one plugin needs on one node.
type measured struct {
	ready       []time.Duration // until all pods are, of each round
	add         []time.Duration // as the container runtime sees it, all plugins of a chain together
	first       time.Duration   // from the installation to the first pod; 0 for the reference plugin
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
		first := c.firstPod(t)
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
	t.Logf("from the installation to the first pod: %s", own.first.Round(10*time.Millisecond))
	t.Logf("the agent with %d pods: %s; processor time in an idle minute: %s", benchPods, own.agentMemory, own.agentTime.Round(time.Millisecond))
}

// firstPod installs Porin on nodes that have its image and a pod that waits, and returns how long that waits from then on.
func (c *cluster) firstPod(t *testing.T) time.Duration {
	t.Helper()
	script(t, "images.sh", os.Getenv(envImage))
	c.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: default}
spec:
  nodeName: %s
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`, c.nodes[0]))
	began := time.Now()
	c.kubectl(t, "apply", "-f", manifest)
	c.kubectl(t, "wait", "--for=condition=Ready", "pod/first", "--timeout=2m")
	took := time.Since(began)
	c.kubectl(t, "delete", "pod", "first", "--timeout=1m")
	c.installed = true
	c.ready(t)
	return took
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
