package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/testutil"
)

// webTo is a policy: pods of app web reach the names of a pattern at port 80, and nothing else.
func webTo(name, pattern string) string {
	return fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: %s}
spec:
  endpointSelector: {matchLabels: {app: web}}
  egress: [{toFQDNs: [{matchPattern: %q}], toPorts: [{ports: [{port: "80", protocol: TCP}]}]}]
`, name, pattern)
}

func named(addresses ...string) (list []dnsname.Address) {
	for _, text := range addresses {
		list = append(list, dnsname.Address{Addr: netip.MustParseAddr(text), TTL: time.Hour})
	}
	return list
}

func (n *node) learn(t *testing.T, ep endpoint.Endpoint, name string, addresses ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return LearnAndWait(ctx, n.queue.names, ep.ID, name, named(addresses...))
}

// reaches compares which of the addresses the kernel lets a pod reach at port 80.
func (n *node) reaches(t *testing.T, ep endpoint.Endpoint, when string, want []string, addresses ...string) {
	t.Helper()
	var got []string
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	for _, text := range addresses {
		if n.kernel.decide(t, desiredFor(t, ep), model.Egress, netip.MustParseAddr(text), 80) {
			got = append(got, text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %s reaches %v of %v, want %v", when, ep.Spec.Pod.Name, got, addresses, want)
	}
}

// TestLearn: when Learn returns, the kernel has the address for all pods that a rule for the name selects.
func TestLearn(t *testing.T) {
	n := servingNode(t, "")
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	const a, b, c = "192.0.2.1", "192.0.2.2", "2001:db8::1"
	if err := n.learn(t, other, "early.example", a); err != nil {
		t.Fatal(err)
	}
	n.put(t, webTo("names", "*.example"))
	n.reaches(t, web, "with a name that was asked for before", []string{a}, a, b, c)
	if err := n.learn(t, web, "www.example", b, c); err != nil {
		t.Fatal(err)
	}
	if err := n.learn(t, web, "www.other", "192.0.2.3"); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, web, "when both are learned", []string{a, b, c}, a, b, c, "192.0.2.3", "192.0.2.4")

	written := n.kernel.times()
	if err := n.learn(t, web, "www.example", c); err != nil || n.kernel.times() != written {
		t.Errorf("an address that is in force: %v, and %d changes were written", err, n.kernel.times()-written)
	}
	if err := n.step.Detach(t.Context(), other, endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, web, "when who has asked is gone", []string{b, c}, a, b, c)

	x, err := n.policies.Explain(t.Context(), endpointtest.NewEndpoints(), "10.0.0.1", b, model.TCP, 80)
	if err != nil || !x.Egress.Allowed || !slices.Equal(x.ToNames, []string{"www.example"}) || x.FromNames != nil {
		t.Errorf("explained as %+v, names %v, %v", x.Egress, x.ToNames, err)
	}
	if err := n.policies.Delete(t.Context(), namesID); err != nil {
		t.Fatal(err)
	}
	if len(n.queue.names.selections)+len(n.queue.names.inEngine)+len(n.queue.names.count) > 0 {
		t.Error("names are selected for no policy")
	}
	n.put(t, webTo("again", "www.example"))
	n.reaches(t, web, "with the next policy", []string{b, c}, a, b, c)
}

// TestLearnEndpointAddress: a pod's address is not learned for a name, and a learned address that a pod gets is
// removed.
func TestLearnEndpointAddress(t *testing.T) {
	n := servingNode(t, "")
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.put(t, webTo("names", "*"))
	for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
		if err := n.learn(t, web, "www.example", addr, "169.254.169.254"); err != nil {
			t.Fatal(err)
		}
	}
	n.reaches(t, web, "while it is no pod's", []string{"10.0.0.3"}, "10.0.0.2", "10.0.0.3", "169.254.169.254")
	n.attach(t, pod(3, "other"))
	n.reaches(t, web, "when it is a pod's", nil, "10.0.0.2", "10.0.0.3")
}

// TestLearnWhileKernelRefuses: Learn fails within its time, and the address is written when the kernel takes it.
func TestLearnWhileKernelRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webTo("names", "*"))
		n.kernel.refuseWith(errKernel)
		if err := n.learn(t, web, "www.example", "192.0.2.1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
		}
		n.kernel.refuseWith(nil)
		<-after(lastRetry)
		n.reaches(t, web, "later", []string{"192.0.2.1"}, "192.0.2.1")
		if err := n.learn(t, web, "www.example", "192.0.2.1"); err != nil {
			t.Errorf("asked for again: %v", err)
		}
	})
}

// TestNamesOfPolicyWrittenLater: names of a policy that the kernel did not take at first are learned when it does.
func TestNamesOfPolicyWrittenLater(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, webTo("names", "www.example"))
	n.kernel.refuseWith(errKernel)
	if _, _, err := n.policies.Put(t.Context(), []byte(webTo("others", "*.other"))); !errors.Is(err, errKernel) {
		t.Fatalf("error %v, want %v", err, errKernel)
	}
	n.kernel.refuseWith(nil)
	if err := errors.Join(n.learn(t, web, "www.example", "192.0.2.1"), n.learn(t, web, "www.other", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, web, "at last", []string{"192.0.2.1", "192.0.2.2"}, "192.0.2.1", "192.0.2.2")
}

// TestNamesMetrics counts addresses that no name may have, such as a pod's.
func TestNamesMetrics(t *testing.T) {
	n := servingNode(t, "")
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.put(t, webTo("names", "www.example"))
	if err := n.learn(t, web, "www.example", "192.0.2.1", other.Addresses.IPv4.String(), "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(n.queue.View(), n.queue.names))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "porin_policy_name_addresses_dropped_total" {
			for _, metric := range family.GetMetric() {
				got[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"answer-limit": 0, "endpoint-limit": 0, "name-limit": 0, "protected": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNamesLimit: an address that there is no room for is not in force, and who asks for it hears so, until there is
// room.
func TestNamesLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		synctest.Wait() // the queue has ended its first round
		n.queue.names.room = 2
		web, other := pod(1, "web"), pod(2, "other")
		n.attach(t, web)
		n.attach(t, other)
		n.put(t, webTo("names", "*.example")+"---"+webTo("others", "*"))
		const a, b, c = "192.0.2.1", "192.0.2.2", "192.0.2.3"
		if err := n.learn(t, other, "a.example", a, b); err != nil {
			t.Fatal(err)
		}
		if err := n.learn(t, web, "c.example", c); !errors.Is(err, errNamesFull) {
			t.Errorf("error %v, want %v", err, errNamesFull)
		}
		if err := n.learn(t, web, "a.example", b); err != nil {
			t.Errorf("an address that is in force: %v", err)
		}
		n.put(t, webTo("more", "a.example"))
		if err := n.learn(t, web, "a.example", b); err != nil {
			t.Errorf("an address that is in force, by a new rule: %v", err)
		}
		n.reaches(t, web, "without room", []string{a, b}, a, b, c)
		if got := newReporter(n.policies).Condition(); got.State != supervisor.Degraded || !strings.Contains(got.Reason, "1 are not in the datapath") {
			t.Errorf("condition %+v, want it degraded for one address", got)
		}
		if err := n.step.Detach(t.Context(), other, endpoint.DeleteConfig{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.reaches(t, web, "when there is room", []string{b, c}, a, b, c)
		if got := newReporter(n.policies).Condition(); got.State != supervisor.OK {
			t.Errorf("condition %+v, want OK", got)
		}
	})
}

// TestNamesFairPart: two pods fill the room for addresses. A third pod gets its part of it, and they keep theirs.
func TestNamesFairPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		synctest.Wait() // the queue has ended its first round
		n.queue.names.room = 8 * leastAddresses
		n.put(t, webTo("names", "*"))
		const third = 3
		ask := func(id, count int) (failed int) {
			asking := pod(id, "web")
			n.attach(t, asking)
			for i := range count {
				if n.learn(t, asking, fmt.Sprintf("n%d.example", i), fmt.Sprintf("192.%d.%d.%d", id, i/256, i%256)) != nil {
					failed++
				}
			}
			return failed
		}
		ask(1, 10*leastAddresses)
		ask(2, leastAddresses)
		if failed := ask(third, 2*leastAddresses); failed > 0 {
			t.Errorf("the third pod got no answer %d times of %d", failed, 2*leastAddresses)
		}
		has := map[uint16]int{}
		for _, l := range n.queue.names.known.List() {
			has[l.Endpoint] += len(l.Addresses)
		}
		if has[1] < leastAddresses || has[2] < leastAddresses || has[third] != 2*leastAddresses {
			t.Errorf("the pods have %v addresses, want at least %d, and %d of the third one", has, leastAddresses, 2*leastAddresses)
		}
		n.reaches(t, pod(third, "web"), "at the end", []string{"192.3.0.1", "192.3.0.127"}, "192.3.0.1", "192.3.0.127")
	})
}

// TestNamesRoomOfPolicy: addresses for which a deleted policy leaves room are written.
func TestNamesRoomOfPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		synctest.Wait() // the queue has ended its first round
		n.queue.names.room = 1
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webTo("names", "a.example"))
		n.put(t, webTo("others", "b.example"))
		if err := n.learn(t, web, "a.example", "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		if err := n.learn(t, web, "b.example", "192.0.2.2"); !errors.Is(err, errNamesFull) {
			t.Errorf("error %v, want %v", err, errNamesFull)
		}
		if err := n.policies.Delete(t.Context(), namesID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.reaches(t, web, "without the first policy", []string{"192.0.2.2"}, "192.0.2.1", "192.0.2.2")
	})
}

// fakeConnections are the connections of all endpoints with one address.
type fakeConnections struct {
	mu   sync.Mutex // guards the field below
	addr netip.Addr
}

func (c *fakeConnections) set(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addr, _ = netip.ParseAddr(text)
}

func (c *fakeConnections) InUse(addresses map[names.Use]bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range addresses {
		addresses[one] = one.Addr == c.addr
	}
	return nil
}

// TestNamesExpire: an address stays for its TTL, and then while a connection uses it.
func TestNamesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &fakeConnections{}
		connections.set("192.0.2.2")
		n := startQueue(t, NewQueue(engine.Config{}, newFakeKernel(), nil, NewNames(Config{}, connections, quiet), quiet), "", nil)
		n.kernel = n.queue.enforcer.(*fakeKernel)
		n.prune(t)
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webTo("names", "*"))
		if err := n.learn(t, web, "www.example", "192.0.2.1", "192.0.2.2"); err != nil {
			t.Fatal(err)
		}
		<-after(time.Hour - 2*expireInterval)
		n.reaches(t, web, "before the end", []string{"192.0.2.1", "192.0.2.2"}, "192.0.2.1", "192.0.2.2")
		<-after(4 * expireInterval)
		n.reaches(t, web, "with a connection", []string{"192.0.2.2"}, "192.0.2.1", "192.0.2.2")
		connections.set("")
		<-after(2 * expireInterval)
		n.reaches(t, web, "without", nil, "192.0.2.1", "192.0.2.2")
	})
}

// TestNamesOutliveAgent: the first write of an agent has what the previous one has learned for endpoints that are still
// there.
func TestNamesOutliveAgent(t *testing.T) {
	dir := t.TempDir()
	start := func(kernel *fakeKernel) *node {
		return startQueue(t, NewQueue(engine.Config{}, kernel, nil, NewNames(Config{Dir: dir}, nil, quiet), quiet), dir, kernel)
	}
	web, other := pod(1, "web"), pod(2, "other")
	n := start(newFakeKernel())
	n.prune(t)
	n.put(t, webTo("names", "*"))
	n.attach(t, web)
	n.attach(t, other)
	if err := errors.Join(n.learn(t, web, "www.example", "192.0.2.1"), n.learn(t, other, "www.other", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	n.stop(t)

	restart := func() *node {
		next := start(newFakeKernel())
		if _, err := next.step.Restore(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		before := next.kernel.times()
		next.prune(t, web)
		if before != 0 || next.kernel.times() != 1 {
			t.Errorf("%d writes before all are restored, %d then; want the first one then", before, next.kernel.times())
		}
		return next
	}
	next := restart()
	next.reaches(t, web, "after a restart", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.2")
	next.stop(t)

	if err := os.WriteFile(filepath.Join(dir, namesFile), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	restart().reaches(t, web, "with a damaged file", nil, "192.0.2.1")
}

// TestNamesOutliveKill: an answer is in the file a moment later, without an orderly end. Answers that say the same
// again write nothing more at once.
func TestNamesOutliveKill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startQueue(t, NewQueue(engine.Config{}, newFakeKernel(), nil, NewNames(Config{Dir: dir}, nil, quiet), quiet), dir, nil)
		n.kernel = n.queue.enforcer.(*fakeKernel)
		n.prune(t)
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webTo("names", "*"))
		<-after(expireInterval / 2)
		path := filepath.Join(dir, namesFile)
		learn := func(addr string) {
			t.Helper()
			if err := n.learn(t, web, "www.example", addr); err != nil {
				t.Fatal(err)
			}
			<-after(saveDelay + time.Millisecond)
		}
		learn("192.0.2.1")
		first, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(first, []byte("192.0.2.1")) {
			t.Errorf("the file has %q, %v; want the address %v after it was learned", first, err, saveDelay)
		}
		learn("192.0.2.1")
		if again, _ := os.ReadFile(path); !bytes.Equal(again, first) {
			t.Error("an answer that says the same wrote the file at once")
		}
		learn("192.0.2.2")
		if second, _ := os.ReadFile(path); !bytes.Contains(second, []byte("192.0.2.2")) {
			t.Errorf("the file has %q; want the second address, too", second)
		}
	})
}

// TestNamesSaveSlow: after a slow write of the file, the next one waits ten times as long.
func TestNamesSaveSlow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startQueue(t, NewQueue(engine.Config{}, newFakeKernel(), nil, NewNames(Config{Dir: dir}, nil, quiet), quiet), dir, nil)
	n.kernel = n.queue.enforcer.(*fakeKernel)
	n.prune(t)
	web := pod(1, "web")
	n.attach(t, web)
	saved := func(addr string) error {
		text, err := os.ReadFile(filepath.Join(dir, namesFile))
		if err == nil && !bytes.Contains(text, []byte(addr)) {
			err = fmt.Errorf("the file has %q, want %s", text, addr)
		}
		return err
	}
	n.queue.names.saving.Lock()
	err := n.learn(t, web, "www.example", "192.0.2.1")
	time.Sleep(4 * saveDelay) // for so long a write waits for the lock
	written := time.Now()
	n.queue.names.saving.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error { return saved("192.0.2.1") })
	if err := n.learn(t, web, "www.example", "192.0.2.2"); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error { return saved("192.0.2.2") })
	if waited := time.Since(written); waited < 4*saveDelay {
		t.Errorf("the next write came %v after one of %v or more", waited, 2*saveDelay)
	}
}

// TestDiffWithNames: proposed rules select what is known of names.
func TestDiffWithNames(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	if err := n.learn(t, web, "www.example", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddr("10.0.0.1")
	flows := fakeFlows{
		{From: from, To: netip.MustParseAddr("192.0.2.1"), Protocol: model.TCP, Port: 80, Count: 1},
		{From: from, To: netip.MustParseAddr("192.0.2.2"), Protocol: model.TCP, Port: 80, Count: 1},
	}
	d, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), flows, []byte(webTo("names", "*.example")), nil)
	if err != nil || len(d.Changes) != 1 || d.Changes[0].To != flows[1].To {
		t.Errorf("changes %+v, %v; want that of the second flow alone", d.Changes, err)
	}
}
