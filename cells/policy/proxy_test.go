package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
)

var errProxy = errors.New("the proxy says no")

// fakeProxy is a [Proxy] that has rules in memory.
type fakeProxy struct {
	mu      sync.Mutex // guards the fields below
	has     map[uint32]model.Layer7
	hangs   bool  // Prepare answers only when its caller has left
	away    error // what it says then, if it is no error of the caller's context
	refuses error // of Prepare
	changed int
	waiting int // calls of Prepare
	broken  error
}

func newFakeProxy() *fakeProxy { return &fakeProxy{has: map[uint32]model.Layer7{}} }

func (p *fakeProxy) set(hangs bool, refuses error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs, p.refuses = hangs, refuses
}

func (p *fakeProxy) Supports(rules model.Layer7) error {
	for _, r := range rules.HTTP {
		if r.Path == "/unsupported" {
			return fault.New(fault.Invalid, "no such path")
		}
	}
	return nil
}

func (p *fakeProxy) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs {
		p.waiting++
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		p.waiting--
		return cmp.Or(p.away, ctx.Err())
	}
	if p.refuses == nil {
		maps.Copy(p.has, rules)
	}
	return p.refuses
}

func (p *fakeProxy) Release(numbers []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range numbers {
		delete(p.has, n)
	}
}

func (p *fakeProxy) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

func (p *fakeProxy) Changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed++
}

func (p *fakeProxy) rules() map[uint32]model.Layer7 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.has)
}

func (p *fakeProxy) changes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *fakeProxy) callsWaiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// webRules is a policy of namespace default: pods of this app may ask pods of app web for GET and this path.
func webRules(app, path string) string {
	return fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web}
spec:
  endpointSelector: {matchLabels: {app: web}}
  ingress:
  - fromEndpoints: [{matchLabels: {app: %s}}]
    toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{method: GET, path: %q}]}}]
`, app, path)
}

var webID = model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "web"}

// l7node is a node with a fake proxy that serves.
func l7node(t *testing.T, proxy *fakeProxy, dir string) *node {
	t.Helper()
	n := startNodeWithProxy(t, proxy, dir, newFakeKernel())
	n.prune(t)
	return n
}

// path is what a client may ask for, by the rules that the proxy has under the value of the kernel's row: "denied",
// "anything", or a path.
func (n *node) path(t *testing.T, proxy *fakeProxy, from, to endpoint.Endpoint) string {
	t.Helper()
	verdict, err := n.kernel.Verdict(Question{Local: Local{ID: to.ID}, Direction: model.Ingress, Peer: from.Addresses.IPv4, Protocol: model.TCP, Port: 80})
	if err != nil {
		t.Fatal(err)
	}
	switch verdict {
	case engine.ValueDeny:
		return "denied"
	case engine.ValueAllow:
		return "anything"
	}
	rules, ok := proxy.rules()[verdict]
	if !ok {
		t.Errorf("a row has number %d, which the proxy does not have", verdict)
		return "denied by the proxy"
	}
	var paths []string
	for _, r := range rules.HTTP {
		paths = append(paths, r.Path)
	}
	return strings.Join(paths, " ")
}

func (n *node) wantsPath(t *testing.T, proxy *fakeProxy, from, to endpoint.Endpoint, want, when string) {
	t.Helper()
	if got := n.path(t, proxy, from, to); got != want {
		t.Errorf("%s: %s may ask for %s, want %s", when, from.Spec.Pod.Name, got, want)
	}
}

// TestProxyLife adds, changes, merges and removes rules: the proxy has the rules of the rows.
func TestProxyLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, t.TempDir())
		web, client := pod(1, "web"), pod(2, "client")
		n.attach(t, web)
		n.attach(t, client)
		if proxy.changes() > 0 || len(proxy.rules()) > 0 {
			t.Errorf("without rules the proxy has %v, and was told of %d changes", proxy.rules(), proxy.changes())
		}
		synctest.Wait() // the first round, which releases what it finds, is over
		n.put(t, webRules("client", "/a"))
		n.wantsPath(t, proxy, client, web, "/a", "after the put")
		before, times := proxy.changes(), n.kernel.times()
		n.put(t, webRules("client", "/b"))
		n.wantsPath(t, proxy, client, web, "/b", "after another put")
		if proxy.changes() != before+1 || n.kernel.times() != times+1 {
			t.Errorf("the proxy was told of %d changes, the kernel of %d, want one", proxy.changes()-before, n.kernel.times()-times)
		}
		n.put(t, strings.Replace(webRules("client", "/c"), "name: web}", "name: more}", 1))
		n.wantsPath(t, proxy, client, web, "/b /c", "with two policies")

		n.kernel.mu.Lock()
		n.kernel.lingering = map[uint32]bool{}
		for number := range proxy.rules() {
			n.kernel.lingering[number] = true
		}
		n.kernel.mu.Unlock()
		n.put(t, toWebFrom("client"))
		n.wantsPath(t, proxy, client, web, "anything", "with a policy without layer 7 rules")
		synctest.Wait()
		<-after(time.Minute)
		if len(proxy.rules()) != 3 {
			t.Errorf("the proxy has %v, want all that a program may still get from the kernel", proxy.rules())
		}
		n.kernel.mu.Lock()
		n.kernel.lingering = nil
		n.kernel.mu.Unlock()
		<-after(time.Minute)
		if len(proxy.rules()) != 0 || len(n.queue.view.engine.UnusedLayer7()) != 0 || n.queue.layer7.inUse() {
			t.Errorf("the proxy has %v at the end", proxy.rules())
		}
	})
}

// TestProxyRefuses: what needs the rules is denied until the proxy takes them, and others are not concerned.
func TestProxyRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, t.TempDir())
		web, client := pod(1, "web"), pod(2, "client")
		n.attach(t, web)
		n.attach(t, client)
		n.put(t, webRules("client", "/a"))
		proxy.set(false, errProxy)
		if _, _, err := n.policies.Put(t.Context(), []byte(webRules("client", "/b"))); !errors.Is(err, errProxy) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v, want %v as unavailable", err, errProxy)
		}
		n.wantsPath(t, proxy, client, web, "denied", "after a put that the proxy refused")
		if m, _ := n.policies.Get(webID); !strings.Contains(string(m.JSON), "/b") {
			t.Errorf("the policy is %s, want the new one", m.JSON)
		}
		if err := n.queue.view.Applied().Withheld; !errors.Is(err, errProxy) {
			t.Errorf("withheld: %v, want %v", err, errProxy)
		}
		n.attach(t, pod(3, "other"))
		proxy.set(false, nil)
		<-after(time.Minute)
		n.wantsPath(t, proxy, client, web, "/b", "when the proxy takes the rules")
		if _, _, err := n.policies.Put(t.Context(), []byte(webRules("client", "/unsupported"))); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "ingress rule 0: no such path") {
			t.Errorf("error %v, want one that says what the proxy does not support", err)
		}
		if err := n.policies.Delete(t.Context(), webID); err != nil {
			t.Errorf("delete: %v", err)
		}
		n.wantsPath(t, proxy, client, web, "anything", "after the deletion")
	})
}

// TestProxyAway: each caller that waits for an absent proxy gets an error that says so, whichever deadline ends first.
func TestProxyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		proxy.hangs, proxy.away = true, fault.New(fault.Unavailable, "porin-proxy is not connected")
		n := l7node(t, proxy, "")
		n.attach(t, pod(1, "web"))
		n.attach(t, pod(2, "client"))
		for _, within := range []time.Duration{prepareTimeout / 2, 2 * prepareTimeout} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			if _, _, err := n.policies.Put(ctx, []byte(webRules("client", "/a"))); !errors.Is(err, proxy.away) {
				t.Errorf("within %s: error %v, want one with %q", within, err, proxy.away)
			}
			cancel()
		}
	})
}

// TestProxyRelease: the proxy keeps rules that no row has any more for some seconds.
func TestProxyRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, "")
		n.attach(t, pod(1, "web"))
		n.attach(t, pod(2, "client"))
		n.put(t, webRules("client", "/a"))
		if len(proxy.rules()) != 1 {
			t.Fatalf("the proxy has %v, want the policy's rules", proxy.rules())
		}
		if err := n.policies.Delete(t.Context(), webID); err != nil {
			t.Fatal(err)
		}
		<-after(releaseInterval + time.Second)
		if left := proxy.rules(); len(left) > 0 {
			t.Errorf("the proxy has %v after the deletion", left)
		}
	})
}

// TestProxyHangs: only the change that needs the proxy waits, until its caller leaves or the time is over.
func TestProxyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, "")
		web, client := pod(1, "web"), pod(2, "client")
		n.attach(t, web)
		n.attach(t, client)
		n.put(t, webRules("client", "/a"))
		proxy.set(true, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		results := make(chan error, 3)
		put := func(ctx context.Context, path string) {
			_, _, err := n.policies.Put(ctx, []byte(webRules("client", path)))
			results <- err
		}
		go put(ctx, "/b")
		go put(context.Background(), "/c")
		<-after(time.Second)
		if proxy.callsWaiting() != 1 {
			t.Fatalf("%d calls wait for the proxy, want that of the loop", proxy.callsWaiting())
		}
		free := time.Now()
		go put(ctx, "/e") // a proxy that is slow is not asked again while others wait
		synctest.Wait()
		other := pod(3, "other")
		n.attach(t, other)
		if err := n.step.Detach(t.Context(), other, endpoint.DeleteConfig{}); err != nil {
			t.Error(err)
		}
		n.put(t, strings.Replace(toWebFrom("other"), "name: web", "name: plain", 1))
		if err := n.policies.Delete(t.Context(), model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "plain"}); err != nil {
			t.Error(err)
		}
		if took := time.Since(free); took > 0 {
			t.Errorf("changes that do not need the proxy took %s", took)
		}
		n.wantsPath(t, proxy, client, web, "denied", "while changes wait")
		cancel()
		for range 2 {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("a caller who left got %v", err)
			}
		}
		if err := <-results; !errors.Is(err, errProxyTimeout) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("the caller who waited got %v", err)
		}
		if took := time.Since(began); took < awaitTimeout || took > awaitTimeout+time.Second {
			t.Errorf("the caller waited %s, want %s", took, awaitTimeout)
		}
		n.wantsPath(t, proxy, client, web, "denied", "after the callers have left")

		proxy.set(false, nil)
		n.put(t, webRules("client", "/d"))
		n.wantsPath(t, proxy, client, web, "/d", "after the proxy has come back")
		<-after(time.Minute)
		if got := slices.Collect(maps.Values(proxy.rules())); len(got) != 1 {
			t.Errorf("the proxy has %v, want the rules in force alone", got)
		}
	})
}

// TestProxyAnswersLate: an endpoint does not wait for a proxy that takes longer than a moment, and is denied until
// then.
func TestProxyAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := startNodeWithProxy(t, proxy, "", newFakeKernel())
		late := &lateProxy{fakeProxy: proxy, delay: time.Second}
		n.queue.layer7.proxy = late
		n.prune(t)
		web, client := pod(1, "web"), pod(2, "client")
		n.attach(t, client)
		n.put(t, webRules("client", "/a")) // selects no pod yet
		began := time.Now()
		n.attach(t, web)
		if took := time.Since(began); took > atOnce {
			t.Errorf("took %s, want at most %s", took, atOnce)
		}
		n.wantsPath(t, proxy, client, web, "denied", "after Attach")
		<-after(2 * time.Second)
		n.wantsPath(t, proxy, client, web, "/a", "when the proxy has answered")
	})
}

// TestProxyAnswersLateAtStart has the first write wait for the proxy.
func TestProxyAnswersLateAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, proxy := t.TempDir(), newFakeProxy()
		web, client := pod(1, "web"), pod(2, "client")
		first := l7node(t, proxy, dir)
		first.put(t, webRules("client", "/a"))
		first.stop(t)
		n := startNodeWithProxy(t, &lateProxy{fakeProxy: proxy, delay: time.Second}, dir, newFakeKernel())
		for _, ep := range []endpoint.Endpoint{web, client} {
			if _, err := n.step.Restore(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
		}
		n.prune(t, web, client)
		n.wantsPath(t, proxy, client, web, "/a", "after the start")
		if times := n.kernel.times(); times != 1 {
			t.Errorf("%d writes, want one", times)
		}
	})
}

// lateProxy answers after a while.
type lateProxy struct {
	*fakeProxy
	delay time.Duration
}

func (p *lateProxy) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	select {
	case <-after(p.delay):
		return p.fakeProxy.Prepare(ctx, rules)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestProxyHangsForChangeThatIsKept: what must not be refused is written at once, and denied until the proxy has the
// rules.
func TestProxyHangsForChangeThatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, "")
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webRules("client", "/a"))
		n.put(t, strings.Replace(webRules("other", "/b"), "name: web}", "name: more}", 1))
		client := pod(2, "client")
		remote := func(labels map[string]string) {
			n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{{
				Key: RemotePrefix + "2", Kind: model.Pod, Namespace: "default", Labels: labels, Addresses: []netip.Addr{client.Addresses.IPv4},
			}}})
			<-after(time.Second)
		}
		n.put(t, strings.NewReplacer("name: web}", "name: tier}", "app: client", "tier: one").Replace(webRules("client", "/c")))
		remote(map[string]string{"app": "client"})
		n.wantsPath(t, proxy, client, web, "/a", "before")
		proxy.set(true, nil)
		remote(map[string]string{"app": "client", "tier": "one"}) // rules that never met
		n.wantsPath(t, proxy, client, web, "denied", "while the proxy does not answer")
		if c := newReporter(n.policies).Condition(); c.State != supervisor.Degraded || !strings.Contains(c.Reason, errProxyTimeout.Error()) {
			t.Errorf("the cell is %+v, want it degraded", c)
		}
		began := time.Now()
		n.attach(t, pod(3, "nobody"))
		if took := time.Since(began); took > 0 {
			t.Errorf("an endpoint that does not need the proxy took %s", took)
		}
		if differences, err := n.queue.View().compare(t.Context()); err != nil || len(differences) > 0 {
			t.Errorf("the kernel differs: %+v, %v", differences, err)
		}
		proxy.set(false, nil)
		<-after(time.Minute)
		n.wantsPath(t, proxy, client, web, "/a /c", "when the proxy answers")
		if c := newReporter(n.policies).Condition(); c.State != supervisor.OK {
			t.Errorf("the cell is %+v, want it healthy", c)
		}
	})
}

// TestProxyAtStart gets everything before the first write; without it what needs it is denied.
func TestProxyAtStart(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir, proxy := t.TempDir(), newFakeProxy()
			web, client := pod(1, "web"), pod(2, "client")
			first := l7node(t, proxy, dir)
			first.put(t, webRules("client", "/a"))
			first.attach(t, web)
			first.attach(t, client)
			first.stop(t)
			numbers := slices.Collect(maps.Keys(proxy.rules()))

			proxy = newFakeProxy()
			proxy.set(hangs, nil)
			n := startNodeWithProxy(t, proxy, dir, newFakeKernel())
			n.kernel.refuse = func(map[string]Local) error {
				if !hangs && len(proxy.rules()) != 1 {
					t.Error("something is written before the proxy has its rules")
				}
				return nil
			}
			for _, ep := range []endpoint.Endpoint{web, client} {
				if _, err := n.step.Restore(t.Context(), ep); err != nil {
					t.Fatal(err)
				}
			}
			n.prune(t, web, client)
			if hangs {
				n.wantsPath(t, proxy, client, web, "denied", "after a start without the proxy")
				if n.queue.view.Applied().Withheld == nil {
					t.Error("nothing says that rules are not in force")
				}
				n.attach(t, pod(3, "other"))
				proxy.set(false, nil)
				<-after(time.Minute)
			}
			n.wantsPath(t, proxy, client, web, "/a", "after the start")
			if again := slices.Collect(maps.Keys(proxy.rules())); !slices.Equal(again, numbers) {
				t.Errorf("the rules have number %d after the start, and had %d", again, numbers)
			}
		})
	}
}

// TestNoProxy: an agent without proxy refuses layer 7 rules, and denies what those need that it finds on the disk.
func TestNoProxy(t *testing.T) {
	dir, proxy := t.TempDir(), newFakeProxy()
	web, client := pod(1, "web"), pod(2, "client")
	with := l7node(t, proxy, dir)
	with.put(t, webRules("client", "/a"))
	with.stop(t)
	n := startNode(t, dir, newFakeKernel())
	if _, err := n.step.Restore(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	n.prune(t, web)
	n.attach(t, client)
	n.wantsPath(t, proxy, client, web, "denied", "by an agent without proxy")
	if _, _, err := n.policies.Put(t.Context(), []byte(webRules("client", "/b"))); !errors.Is(err, errNoProxy) || fault.KindOf(err) != fault.Invalid {
		t.Errorf("error %v, want %v as invalid", err, errNoProxy)
	}
	if c := newReporter(n.policies).Condition(); c.State != supervisor.Degraded || !strings.Contains(c.Reason, errNoProxy.Error()) {
		t.Errorf("the cell is %+v, want it degraded", c)
	}
	n.put(t, strings.Replace(toWebFrom("client"), "name: web", "name: plain", 1))
	n.wantsPath(t, proxy, client, web, "anything", "with a policy without layer 7 rules")
}
