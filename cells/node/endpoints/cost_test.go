package endpoints

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
)

var printCost = flag.Bool("cost", false, "print what publishing costs at 5,000 nodes, for docs/adr/0034")

// The cluster of the simulation.
const (
	costNodes      = 5000
	costPods       = 110 // of each node
	costChanges    = 100 // pods that come or go in the cluster in a second
	costNamespaces = 100
	costApps       = 2000 // deployments
	costSampled    = 50   // nodes that are simulated: all are alike
)

// variant is a way to publish.
type variant struct {
	name      string
	groupSize int
	interval  time.Duration // between two writes of a node
	identity  bool          // entries have the number of a label set that is an object of its own
	burst     int           // pods of a node that change together, within two seconds
	apps      int           // deployments that a node has pods of; 0: of all
}

// cost is what a variant costs the whole cluster.
type cost struct {
	writes      float64 // a second
	eventBytes  float64 // of a write as it is sent to each agent
	storedBytes float64
	objects     float64
}

// TestPublishingCost simulates nodes that publish with the code of the publisher, and compares ways to do it.
func TestPublishingCost(t *testing.T) {
	duration := 2 * time.Minute
	if *printCost {
		duration = time.Hour
	}
	var variants []variant
	for _, size := range []int{1, 4, 8, 16, 64, 110} {
		variants = append(variants, variant{name: fmt.Sprintf("groups of %d", size), groupSize: size, interval: interval, burst: 1})
	}
	variants = append(
		variants,
		variant{name: "groups of 8, identities in the cluster", groupSize: 8, interval: interval, identity: true, burst: 1},
		variant{name: "groups of 100, identities in the cluster", groupSize: 100, interval: interval, identity: true, burst: 1},
		variant{name: "groups of 8, 8 deployments a node", groupSize: 8, interval: interval, burst: 1, apps: 8},
		variant{name: "groups of 8, bursts of 10", groupSize: 8, interval: interval, burst: 10},
		variant{name: "groups of 8, bursts of 10, at once", groupSize: 8, burst: 10},
		variant{name: "groups of 8, bursts of 10, each 5 s", groupSize: 8, interval: 5 * time.Second, burst: 10},
		variant{name: "groups of 1, bursts of 10", groupSize: 1, interval: interval, burst: 10},
		variant{name: "groups of 110, bursts of 10", groupSize: 110, interval: interval, burst: 10},
	)
	costs := map[string]cost{}
	for _, v := range variants {
		c := simulate(t, v, duration)
		costs[v.name] = c
		if *printCost {
			fmt.Printf("%-42s %6.1f writes/s %7.0f B an event %7.0f kB/s to an agent %7.2f GB/s in all %6.0f MB stored in %7.0f objects\n",
				v.name, c.writes, c.eventBytes, c.writes*c.eventBytes/1e3, c.writes*c.eventBytes*costNodes/1e9, c.storedBytes/1e6, c.objects)
		}
	}
	chosen, single, whole := costs["groups of 8"], costs["groups of 1"], costs["groups of 110"]
	if chosen.writes > costChanges*1.1 {
		t.Errorf("%.1f writes a second for %d changes: want no more than one each", chosen.writes, costChanges)
	}
	if chosen.objects > single.objects/6 || chosen.eventBytes > whole.eventBytes/4 {
		t.Errorf("%.0f objects and %.0f bytes an event, want less than a sixth of the objects for single pods (%.0f), and a quarter of the bytes for whole nodes (%.0f)",
			chosen.objects, chosen.eventBytes, single.objects, whole.eventBytes)
	}
	if burst, at := costs["groups of 8, bursts of 10"], costs["groups of 8, bursts of 10, at once"]; burst.writes > at.writes*2/3 {
		t.Errorf("%.1f writes a second of bursts, want less than two thirds of the %.1f without batches", burst.writes, at.writes)
	}
}

// simulate has some nodes publish what comes and goes, and scales that to the cluster.
func simulate(t *testing.T, v variant, duration time.Duration) (c cost) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	const scale = float64(costNodes) / costSampled
	for number := range costSampled {
		n := newCostNode(v, r, number)
		n.publish(t)
		c.storedBytes += n.storedBytes(t) * scale
		c.objects += float64(len(n.stored)) * scale
		n.writes, n.bytes = 0, 0
		n.run(t, duration)
		c.writes += n.writes / duration.Seconds() * scale
		c.eventBytes += n.bytes
	}
	c.eventBytes /= max(1, c.writes/scale*duration.Seconds())
	return c
}

// costNode is a node that publishes.
type costNode struct {
	variant
	*rand.Rand
	id            cluster.NodeID
	pods          []published
	stored        map[int]cluster.EndpointGroup
	used          int // addresses so far
	writes, bytes float64
}

func newCostNode(v variant, r *rand.Rand, number int) *costNode {
	n := &costNode{variant: v, Rand: r, id: node.IDOfName(fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number>>8, number&255)), stored: map[int]cluster.EndpointGroup{}}
	for range costPods {
		n.come()
	}
	return n
}

// come adds a pod of any deployment.
func (n *costNode) come() {
	app := n.IntN(cmp.Or(n.apps, costApps))
	n.used++
	p := published{
		addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 128, byte(n.used >> 8), byte(n.used)}), netip.AddrFrom16([16]byte{0: 0xfd, 2: 1, 14: byte(n.used >> 8), 15: byte(n.used)}),
		},
		pod:   fmt.Sprintf("app-%d-6d4f9c7b58-%05d", app, n.used),
		ports: []cluster.PublishedPort{{Name: "http", Protocol: "TCP", Port: 8080}},
	}
	if n.identity {
		p.labels = cluster.LabelSet{Namespace: fmt.Sprint("team-", app%costNamespaces), Labels: map[string]string{"id": fmt.Sprint(100000 + app)}}
	} else {
		namespace := fmt.Sprint("team-", app%costNamespaces)
		p.labels = cluster.LabelSet{
			Namespace: namespace, NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": namespace, "zone": fmt.Sprint("zone-", app%5)},
			Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprint("app-", app), "app.kubernetes.io/part-of": namespace, "tier": fmt.Sprint("tier-", app%3), "pod-template-hash": "6d4f9c7b58"},
		}
	}
	n.pods = append(n.pods, p)
}

// change removes a pod, or adds one when one was removed.
func (n *costNode) change() {
	if len(n.pods) < costPods {
		n.come()
		return
	}
	i := n.IntN(len(n.pods))
	n.pods = append(n.pods[:i:i], n.pods[i+1:]...)
}

// run has pods come and go for a while. As the publisher does, the node writes at once after a pause, and else when the
// interval is over.
func (n *costNode) run(t *testing.T, duration time.Duration) {
	t.Helper()
	mean := time.Duration(float64(time.Second) * float64(n.burst) * costNodes / costChanges)
	due, last := time.Duration(-1), -time.Hour
	var changes []time.Duration
	for now := n.exp(mean); now < duration; now += n.exp(mean) {
		for range n.burst {
			changes = append(changes, now+time.Duration(n.Int64N(int64(2*time.Second))))
		}
		if n.burst == 1 {
			changes[len(changes)-1] = now
		}
	}
	slices.Sort(changes)
	for i, at := range changes {
		if due < 0 || at > due {
			due = max(at, last+n.interval)
		}
		n.change()
		if i+1 == len(changes) || changes[i+1] > due {
			n.publish(t)
			last, due = due, -1
		}
	}
}

func (n *costNode) exp(mean time.Duration) time.Duration {
	return time.Duration(n.ExpFloat64() * float64(mean))
}

// publish writes what has changed.
func (n *costNode) publish(t *testing.T) {
	t.Helper()
	for _, g := range plan(n.id, n.groupSize, n.stored, n.pods) {
		n.writes++
		n.bytes += recordBytes(t, g)
		if len(g.Endpoints) == 0 {
			delete(n.stored, g.Slot)
		} else {
			n.stored[g.Slot] = g
		}
	}
}

func (n *costNode) storedBytes(t *testing.T) (sum float64) {
	t.Helper()
	for _, g := range n.stored {
		sum += recordBytes(t, g)
	}
	return sum
}

// recordBytes are the bytes of key and value in the store; of a deletion the key alone.
func recordBytes(t *testing.T, g cluster.EndpointGroup) float64 {
	t.Helper()
	key := len("/porin/endpoints/" + g.RecordName())
	if len(g.Endpoints) == 0 {
		return float64(key)
	}
	value, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	return float64(key + len(value))
}
