package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/supervisor"
)

// after is for tests in a bubble, where it takes no time.
func after(d time.Duration) <-chan time.Time { return time.After(d) }

// fakeAddresses is a nodeaddr.Source.
type fakeAddresses struct {
	mu      sync.Mutex // guards the field below
	has     map[netip.Addr]string
	changes chan netip.Addr
}

func (a *fakeAddresses) List() (map[netip.Addr]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.has), nil
}

// Watch closes its channel when ctx ends, as the kernel's does.
func (a *fakeAddresses) Watch(ctx context.Context) (<-chan netip.Addr, error) {
	changes := make(chan netip.Addr)
	go func() {
		defer close(changes)
		for {
			select {
			case addr := <-a.changes:
				changes <- addr
			case <-ctx.Done():
				return
			}
		}
	}()
	return changes, nil
}

// TestFollowNodeAddresses: the node reaches its pods by every address that it has, also after the kernel has refused a
// new one for a while.
func TestFollowNodeAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, "", newFakeKernel())
		first, second, loopback := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("127.0.0.1")
		source := &fakeAddresses{has: map[netip.Addr]string{first: "eth0", loopback: "lo"}, changes: make(chan netip.Addr)}
		f := newFollower(source, n.queue, quiet)
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		defer f.Stop(t.Context())
		n.prune(t)
		n.put(t, toWebFrom("client"))
		web := pod(1, "web")
		n.attach(t, web)
		reached := func(addr netip.Addr) bool {
			return n.kernel.allows(t, desiredEndpoint{Endpoint: model.Endpoint{Key: HostKey, Addresses: []netip.Addr{addr}}}, desiredFor(t, web), 80)
		}
		if !reached(first) || reached(second) || reached(loopback) {
			t.Errorf("reached from %s: %t, %s: %t, %s: %t; want the first alone", first, reached(first), second, reached(second), loopback, reached(loopback))
		}
		n.kernel.refuseWith(errKernel)
		source.mu.Lock()
		delete(source.has, first)
		source.has[second] = "eth0"
		source.mu.Unlock()
		source.changes <- second
		<-after(3 * time.Second)
		tries := n.kernel.times()
		if c := newReporter(n.policies).Condition(); c.State != supervisor.Degraded || tries < 4 || tries > 12 {
			t.Errorf("after 3 s of failures: %+v after %d changes, want it degraded, and a few tries", c, tries)
		}
		if reached(second) || !reached(first) {
			t.Error("what cannot be written is in force, or what was before is not")
		}
		n.kernel.refuseWith(nil)
		<-after(lastRetry)
		if !reached(second) || reached(first) {
			t.Error("the address that the node has now does not reach the pod, or the one of before does")
		}
		if c := newReporter(n.policies).Condition(); c.State != supervisor.OK {
			t.Errorf("after all is written: %+v", c)
		}
	})
}

// TestRandomFailures makes changes of all kinds while the kernel refuses some: in the end it agrees with the engine.
func TestRandomFailures(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		randomFailures(t, r)
	}
}

var namesID = model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "names"}

func randomFailures(t *testing.T, r *rand.Rand) {
	k, proxy := newFakeKernel(), newFakeProxy()
	q := NewQueue(engine.Config{}, k, proxy, nil, quiet)
	k.check = func(row engine.Row) {
		if number := row.Decision.Value(); number > engine.ValueAllow && !reflect.DeepEqual(proxy.rules()[number], row.Decision.Layer7.Rules) {
			t.Errorf("a row has number %d for %s, and the proxy has %s", number, row.Decision.Layer7.Rules, proxy.rules()[number])
		}
	}
	q.open.Do(func() { close(q.opened) })
	k.refuse = func(map[string]Local) error { return map[bool]error{true: errKernel}[r.IntN(3) == 0] }
	apps := []string{"web", "client", "other", ""}
	for range 60 {
		proxy.set(false, map[bool]error{true: errProxy}[r.IntN(3) == 0])
		if r.IntN(4) == 0 {
			_ = q.layer7Round(t.Context()) // also while the proxy refuses
		}
		var requests []*request
		for range 1 + r.IntN(3) {
			var u update
			switch i := 1 + r.IntN(8); r.IntN(9) {
			case 7:
				p := policyOf(t, webTo("names", []string{"*.example", "a.example"}[r.IntN(2)]))
				u.policies.set(p.ID, &p)
			case 8:
				u.policies.set(namesID, nil)
			case 0:
				u = removeEndpoint(pod(i, "").Spec.Attachment.String())
			case 1:
				u.policies.set(model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}, nil)
			case 2:
				p := policyOf(t, toWebFrom(apps[r.IntN(3)]))
				u.policies.set(p.ID, &p)
			case 3:
				u.policies.set(webID, nil)
			case 4:
				p := policyOf(t, webRules(apps[r.IntN(3)], []string{"/a", "/b"}[r.IntN(2)]))
				u.policies.set(p.ID, &p)
			default:
				s := desiredFor(t, pod(i, apps[r.IntN(4)]))
				s.local.ID += uint16(100 * r.IntN(2))
				u = setEndpoint(s)
			}
			requests = append(requests, &request{update: u, done: make(chan error, 1)})
		}
		for range r.IntN(3) {
			q.names.known.Learn(uint16(r.IntN(3)), []string{"a.example", "b.example", "c.other"}[r.IntN(3)], named(fmt.Sprint("192.0.2.", r.IntN(8))))
		}
		if r.IntN(5) == 0 {
			q.names.known.RemoveEndpoint(uint16(r.IntN(3)))
		}
		q.serve(requests)
		for _, one := range requests {
			<-one.done
		}
	}
	k.refuse = nil
	proxy.set(false, nil)
	if err := q.layer7Round(t.Context()); err != nil {
		t.Error(err)
	}
	q.serve(nil)
	if err := q.releaseLocked(); err != nil {
		t.Error(err)
	}
	if inForce := q.view.engine.Layer7(); len(inForce) != len(proxy.rules()) || q.view.Applied().Withheld != nil {
		t.Errorf("the proxy has %d sets of rules, and %d are in force; withheld: %v", len(proxy.rules()), len(inForce), q.view.Applied().Withheld)
	}
	all := map[string]desiredEndpoint{}
	for ep := range q.view.engine.Endpoints() {
		all[ep.Key] = *q.view.endpoint(ep.Key)
	}
	for rule, s := range q.names.selections {
		addresses := maps.Collect(q.view.engine.Domains())[rule]
		if want := s.Addresses(); !slices.Equal(addresses, want) {
			t.Errorf("the engine has %v for %v, want %v", addresses, rule, want)
		}
	}
	if used := q.view.domainRules(); len(used) != len(q.names.selections) {
		t.Errorf("%d rules are selected, and policies have %d", len(q.names.selections), len(used))
	}
	for key, s := range all {
		for i := range 8 {
			addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			if want := q.view.engine.Evaluate(s.Addresses[0], addr, model.TCP, 80).Allowed; k.decide(t, s, model.Egress, addr, 80) != want {
				t.Errorf("%s to %s: the kernel does not say what the engine does: %t", key, addr, want)
			}
		}
		if k.endpoints[key].id != s.local.ID {
			t.Errorf("the kernel has ID %d for %s, want %d", k.endpoints[key].id, key, s.local.ID)
		}
		for _, peer := range all {
			want := q.view.engine.Evaluate(s.Addresses[0], peer.Addresses[0], model.TCP, 80)
			if key != peer.Key && k.allows(t, s, peer, 80) != want.Allowed {
				t.Errorf("%s to %s: the kernel does not say what the engine does: %t, by %s and %s", key, peer.Key, want.Allowed, want.Egress, want.Ingress)
			}
		}
	}
	if len(k.endpoints) != len(all) || len(k.addresses) != len(all) {
		t.Errorf("the kernel has %d endpoints and %d addresses, want %d", len(k.endpoints), len(k.addresses), len(all))
	}
	tables := map[engine.TableID]bool{}
	for _, ep := range k.endpoints {
		tables[ep.tables[0]], tables[ep.tables[1]] = true, true
	}
	if len(k.tables) != len(tables) {
		t.Errorf("the kernel has %d tables, and %d are in use", len(k.tables), len(tables))
	}
}

// TestCollectedBeforeOpen: endpoints of other nodes are in the engine before the queue is open, and nothing is written.
func TestCollectedBeforeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeKernel()
		q := NewQueue(engine.Config{}, k, nil, nil, quiet)
		q.Start(nil)
		defer func() {
			if err := q.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		addr := netip.MustParseAddr("10.1.0.1")
		q.SetRemote(RemoteChange{Set: []model.Endpoint{{Key: RemotePrefix + "1", Kind: model.Pod, Addresses: []netip.Addr{addr}}}})
		synctest.Wait()
		var end engine.End
		q.View().read(func(e *engine.Engine) { end = e.End(addr) })
		if end.Kind != model.Pod || len(q.waiting) > 0 || k.times() > 0 {
			t.Errorf("the address is of a %s, %d requests wait, and the kernel was told %d times; want a pod, none and never", end.Kind, len(q.waiting), k.times())
		}
		if err := q.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if k.addresses[addr] != end.Class {
			t.Errorf("after the start the kernel has %v, want the address", k.addresses)
		}
	})
}

// TestStopWaitsForWriter: after Stop nothing is written, although callers write, too.
func TestStopWaitsForWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		begun, proceed := make(chan struct{}), make(chan struct{})
		n.kernel.mu.Lock()
		n.kernel.refuse = func(map[string]Local) error { close(begun); <-proceed; return nil }
		n.kernel.mu.Unlock()
		written, stopped := make(chan error, 1), make(chan error, 1)
		go func() { written <- n.queue.set(t.Context(), setEndpoint(desiredFor(t, pod(1, "web")))) }()
		<-begun
		go func() { stopped <- n.queue.Stop(t.Context()) }()
		synctest.Wait()
		if len(stopped) > 0 {
			t.Error("stopped while a caller writes")
		}
		close(proceed)
		if err := errors.Join(<-written, <-stopped); err != nil {
			t.Error(err)
		}
		if err := n.queue.set(t.Context(), setEndpoint(desiredFor(t, pod(2, "web")))); !errors.Is(err, errStopped) {
			t.Errorf("after the stop: error %v, want %v", err, errStopped)
		}
	})
}

func TestEntriesLastMention(t *testing.T) {
	var e entries[string, int]
	e.set("a", new(1))
	e.set("b", new(2))
	e.set("a", nil)
	if !slices.Equal(e.keys, []string{"b", "a"}) || e.values["a"] != nil || *e.values["b"] != 2 {
		t.Errorf("keys %q, values %v", e.keys, e.values)
	}
}

// TestTakeCollected: a round before the queue is open takes requests without a waiting caller, and leaves the request
// of a caller that has opened it meanwhile.
func TestTakeCollected(t *testing.T) {
	q := NewQueue(engine.Config{}, newFakeKernel(), nil, nil, quiet)
	q.collect(update{})
	awaited := q.push(&request{})
	if taken := q.takeCollected(); len(taken) != 1 || len(q.waiting) != 1 || q.waiting[0] != awaited {
		t.Errorf("%d requests taken, %d left, want the one that nobody waits for taken", len(taken), len(q.waiting))
	}
}

// TestTakeYields: a batch of policies lets an ADD go first that waits beside it, but only once.
func TestTakeYields(t *testing.T) {
	q := NewQueue(engine.Config{}, newFakeKernel(), nil, nil, quiet)
	var policies update
	policies.policies.set(model.PolicyID{Name: "a"}, nil)
	batch := q.collect(policies)
	add := q.push(&request{update: setEndpoint(desiredEndpoint{})})
	if taken := q.take(); !slices.Equal(taken, []*request{add}) {
		t.Errorf("%d requests taken, want the other one alone", len(taken))
	}
	another := q.push(&request{update: setEndpoint(desiredEndpoint{})})
	if taken := q.take(); !slices.Equal(taken, []*request{batch, another}) {
		t.Errorf("%d requests taken, want the batch and the other one", len(taken))
	}
	alone := q.collect(policies)
	flush := q.push(&request{})
	if taken := q.take(); !slices.Equal(taken, []*request{alone, flush}) || len(q.take()) > 0 {
		t.Errorf("%d requests taken, want the batch and the flush", len(taken))
	}
}
