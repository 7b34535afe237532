package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// localPods is how many pods the agent's own node has, and policyCount how many policies select them.
const (
	localPods   = 20
	policyCount = 200
)

const metricsAddress = "127.0.0.1:9964"

// world is a node with a real agent, with pods and policies that select pods of other nodes.
type world struct {
	*testing.T
	node   *testutil.Node
	server server
	agent  *testutil.Agent
	api    *client.Client
}

// newWorld returns one whose agent runs, with its records at the API server.
func newWorld(t *testing.T, start func(*testing.T, *testutil.Node) server) *world {
	t.Helper()
	testutil.Root(t)
	w := &world{T: t, node: testutil.NewNode(t)}
	w.server = start(t, w.node)
	for i := range namespaces {
		name := namespaceName(i)
		labels := map[string]string{"kubernetes.io/metadata.name": name, "zone": fmt.Sprint("zone-", i%5)}
		w.server.put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	w.agent = w.node.StartAgent(t, testutil.Build(t), "--store=kubernetes", "--kubeconfig="+w.server.kubeconfig(t),
		"--metrics-address="+metricsAddress, "--log-level=warn", fmt.Sprint("--datapath-max-addresses=", max(1<<17, 2**nodeCount*(*podCount+2))))
	w.api = client.New(w.node.Socket)
	t.Cleanup(w.api.Close)
	cni := w.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t)})
	for i := range localPods {
		c := testutil.NewContainer(t)
		set := labelsOf(i * deployments % (namespaces * deployments))
		name := fmt.Sprint("local-", i)
		c.Args = [][2]string{{"K8S_POD_NAMESPACE", set.Namespace}, {"K8S_POD_NAME", name}}
		w.server.put(t, &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name, Labels: set.Labels},
			Spec: corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "app", Image: "none"}}},
		})
		cni.MustAdd(t, c)
	}
	if _, err := w.api.PutPolicies(t.Context(), []byte(policies())); err != nil {
		t.Fatal(err)
	}
	return w
}

// policies are for all pods of the namespaces of local pods: each lets in one deployment of its namespace, and a tier
// of the namespaces of a zone.
func policies() string {
	var all strings.Builder
	for i := range policyCount {
		fmt.Fprintf(&all, `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy-%d, namespace: team-%d}
spec:
  podSelector: {}
  ingress:
  - from: [{podSelector: {matchLabels: {app: app-%d}}}]
    ports: [{port: 8080}]
  - from: [{namespaceSelector: {matchLabels: {zone: zone-%d}}, podSelector: {matchLabels: {tier: tier-%d}}}]
`, i, i%localPods, i%deployments, i%5, i/5%3)
	}
	return all.String()
}

// allowed says what the policies mean for a pod of a deployment, and a local one.
func allowed(deployment, local int) bool {
	namespace := deployment / deployments
	for i := local; i < policyCount; i += localPods {
		if namespace == local && deployment%deployments == i%deployments || namespace%5 == i%5 && deployment%3 == i/5%3 {
			return true
		}
	}
	return false
}

// pinned opens a map of the agent's.
func (w *world) pinned(name string) *ebpf.Map {
	w.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(w.node.BPFRoot, "maps", name), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { m.Close() })
	return m
}

// classes are the addresses in the active copy.
func (w *world) classes() map[netip.Addr]uint32 {
	w.Helper()
	all := map[netip.Addr]uint32{}
	m := w.pinned(bpf.Addresses)
	active := w.activeCopy()
	keys, values := make([]abi.AddressKey, 1<<14), make([]uint32, 1<<14)
	for cursor := (ebpf.MapBatchCursor{}); ; {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if keys[i].Copy == active {
				all[keys[i].Addr.IP()] = values[i]
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all
		}
		if err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) activeCopy() (active uint32) {
	w.Helper()
	if err := w.pinned(bpf.ActiveCopy).Lookup(uint32(0), &active); err != nil {
		w.Fatal(err)
	}
	return active % abi.PolicyCopies
}

// use is what an agent takes, in bytes.
type use struct{ maps, heap, rss, peak float64 }

func (w *world) use() use {
	return use{w.mapBytes(), w.heap(), w.status("RssAnon:"), w.status("VmHWM:")}
}

// mapBytes is the kernel's memory of the maps of policies.
func (w *world) mapBytes() (sum float64) {
	w.Helper()
	for _, name := range []string{bpf.Addresses, bpf.Prefixes, bpf.Tables, bpf.Rows} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.pinned(name).FD()))
		if err != nil {
			w.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "memlock:")
		var bytes float64
		if _, err := fmt.Sscan(rest, &bytes); err != nil {
			w.Fatal(err)
		}
		sum += bytes
	}
	return sum
}

// cpu is the time that the agent has had of processors.
func (w *world) cpu() time.Duration { w.Helper(); return processor(w.T, w.agent.PID()) }

// processor is the time that a process has had of processors.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// status is a figure of the kernel's about the agent's memory: the anonymous one is its own, and the most of the
// resident one has the files, too.
func (w *world) status(name string) float64 {
	w.Helper()
	return float64(memoryOf(w.T, w.agent.PID(), name))
}

// memory is the resident memory of a process, in bytes.
func memory(t *testing.T, pid int) int { t.Helper(); return memoryOf(t, pid, "VmRSS:") }

func memoryOf(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// heap is what is alive in the agent: the least of some garbage collections, as what is allocated while one runs counts
// as alive. To ask for the metrics makes it allocate, not much at once.
func (w *world) heap() float64 {
	w.Helper()
	least, last := math.Inf(1), w.metrics()["go_memstats_last_gc_time_seconds"]
	for collections := 0; collections < 12; {
		m := w.metrics()
		if now := m["go_memstats_last_gc_time_seconds"]; now > last {
			last = now
			collections++
			least = min(least, m["go_memstats_next_gc_bytes"]/2) // GOGC=100
		}
	}
	return least
}

func (w *world) metrics() map[string]float64 {
	w.Helper()
	conn, err := w.node.Dial(netip.MustParseAddrPort(metricsAddress), testutil.Patience)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		w.Fatal(err)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if name, text, ok := strings.Cut(lines.Text(), " "); ok {
			if value, err := strconv.ParseFloat(text, 64); err == nil {
				all[name] = value
			}
		}
	}
	return all
}

// settles waits until the agent has written to its disk what it was told of before the time.
func (w *world) settles(since time.Time) {
	w.Helper()
	testutil.Eventually(w, func() error {
		var all []v1.Controller
		if err := w.agent.Get("/v1/controller", &all); err != nil {
			return err
		}
		for _, c := range all {
			if c.Name == "node-cache-peers" && c.LastRun != nil && c.LastRun.After(since) && c.Error == "" {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond) // to ask takes processor time
		return errors.New("it has not written yet")
	})
}
