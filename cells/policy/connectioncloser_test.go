package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// fakeCloser is a [ConnectionCloser] with open connections. It asks about each once.
type fakeCloser struct {
	mu     sync.Mutex // guards the fields below
	open   map[string]fakeConnection
	closed []string
	begun  [][]Local
}

// add has another connection be open.
func (c *fakeCloser) add(name string, o fakeConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[name] = o
}

// names are the connections that were closed, once for each time.
func (c *fakeCloser) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.closed)
}

type fakeConnection struct {
	from, to netip.Addr
	port     uint16
}

type fakeClosing struct {
	closer *fakeCloser
	seen   map[string]bool
}

func (c *fakeCloser) Begin(locals []Local) Closing {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = append(c.begun, locals)
	return &fakeClosing{c, map[string]bool{}}
}

func (c *fakeClosing) End() {}

func (c *fakeClosing) Close(effectOf Layer7Effect) {
	c.closer.mu.Lock()
	defer c.closer.mu.Unlock()
	for name, o := range c.closer.open {
		if c.seen[name] {
			continue
		}
		c.seen[name] = true
		if effectOf(o.from, o.to, o.port) != EffectNone {
			c.closer.closed = append(c.closer.closed, name)
			delete(c.closer.open, name)
		}
	}
}

// remotePod is a pod of another node.
func remotePod(n int, app string) model.Endpoint {
	return model.Endpoint{Key: fmt.Sprintf("%sr%d", RemotePrefix, n), Kind: model.Pod, Namespace: "default", Labels: map[string]string{"app": app},
		NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "default"}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})}}
}

// atRemotePod has the first remote pod's address, for those who ask what the kernel has for it.
func atRemotePod() endpoint.Endpoint {
	ep := pod(9, "other")
	ep.Addresses.IPv4 = netip.MustParseAddr("10.1.0.1")
	return ep
}

// attachWithNamespaces attaches endpoints whose connections can be found.
func attachWithNamespaces(t *testing.T, n *node, eps ...*endpoint.Endpoint) {
	t.Helper()
	for i, ep := range eps {
		ep.Spec.NetNSCookie = uint64(100 + i)
		n.attach(t, *ep)
	}
}

const clientPlain = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: client}
spec:
  endpointSelector: {matchLabels: {app: client}}
  egress:
  - toEndpoints: [{matchLabels: {app: web}}]
  - toEndpoints: [{matchLabels: {app: api}}]
`
const clientProxiedToAPI = clientPlain + `    toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{method: GET, path: "/x"}]}}]
`

// TestCloseOtherNodesRules has a connection to a pod of another node, where that has layer 7 rules, stay open when its client gets some for another server.
func TestCloseOtherNodesRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := l7node(t, newFakeProxy(), t.TempDir())
		client := pod(2, "client")
		web, api := remotePod(1, "web"), remotePod(2, "api")
		c := &fakeCloser{open: map[string]fakeConnection{
			"client->remote web": {client.Addresses.IPv4, web.Addresses[0], 80}, "client->remote api": {client.Addresses.IPv4, api.Addresses[0], 80},
		}}
		n.queue.CloseWith(c)
		attachWithNamespaces(t, n, &client)
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{web, api}})
		time.Sleep(time.Second)
		n.put(t, webRules("client", "/a")) // rules of web, which the other node applies
		n.put(t, clientPlain)
		if len(c.names()) > 0 {
			t.Fatalf("closed early %q", c.names())
		}
		n.put(t, clientProxiedToAPI)
		if want := []string{"client->remote api"}; !slices.Equal(c.names(), want) {
			v := n.queue.view.Evaluate(client.Addresses.IPv4, web.Addresses[0], model.TCP, 80)
			t.Errorf("closed %q, want %q; to web: egress %s, ingress %s", c.names(), want, v.Egress, v.Ingress)
		}
	})
}

// TestCloseOtherNodeInAudit has layer 7 rules come for a connection that the other end's policy denies as this node evaluates it: the other node may have it in audit.
func TestCloseOtherNodeInAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := l7node(t, newFakeProxy(), t.TempDir())
		client := pod(2, "client")
		api := remotePod(2, "api")
		c := &fakeCloser{open: map[string]fakeConnection{"client->remote api": {client.Addresses.IPv4, api.Addresses[0], 80}}}
		n.queue.CloseWith(c)
		attachWithNamespaces(t, n, &client)
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{api}})
		time.Sleep(time.Second)
		n.put(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: api}
spec: {podSelector: {matchLabels: {app: api}}, policyTypes: [Ingress]}
`) // node of api runs with --policy-audit
		n.put(t, clientPlain)
		n.put(t, clientProxiedToAPI)
		verdict, _ := n.kernel.Verdict(Question{Local: Local{ID: client.ID}, Direction: model.Egress, Peer: api.Addresses[0], Protocol: model.TCP, Port: 80})
		if len(c.names()) != 1 {
			t.Errorf("closed %q, want the connection to api, whose row has %d now", c.names(), verdict)
		}
	})
}

// TestCloseAtStart has layer 7 rules come with the first write of an agent, as the previous one was in audit.
func TestCloseAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy, kernel, dir := newFakeProxy(), newFakeKernel(), t.TempDir()
		web, client := pod(1, "web"), pod(2, "client")
		first := startQueue(t, NewQueue(engine.Config{Audit: true}, kernel, proxy, nil, quiet), dir, kernel)
		first.prune(t)
		attachWithNamespaces(t, first, &web, &client)
		first.put(t, webRules("client", "/a"))
		first.wantsPath(t, proxy, client, web, "anything", "in audit")
		first.stop(t)
		q := NewQueue(engine.Config{}, kernel, proxy, nil, quiet)
		c := &fakeCloser{open: map[string]fakeConnection{"client->web": {client.Addresses.IPv4, web.Addresses.IPv4, 80}}}
		q.CloseWith(c)
		n := startQueue(t, q, dir, kernel)
		for _, ep := range []endpoint.Endpoint{web, client} {
			if _, err := n.step.Restore(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
		}
		n.prune(t, web, client)
		n.wantsPath(t, proxy, client, web, "/a", "after the restart")
		if len(c.names()) != 1 {
			t.Errorf("closed %q, want the one connection that gets rules", c.names())
		}
	})
}

// TestCloseRulesWithheld has a peer get rules that were released, while the proxy does not answer: rows deny until it does.
func TestCloseRulesWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, t.TempDir())
		web, client := pod(1, "web"), pod(2, "client")
		c := &fakeCloser{open: map[string]fakeConnection{"remote->web": {netip.MustParseAddr("10.1.0.1"), web.Addresses.IPv4, 80}}}
		n.queue.CloseWith(c)
		attachWithNamespaces(t, n, &web, &client)
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "other")}})
		time.Sleep(time.Second)
		n.put(t, webRules("late", "/a")+`
  - fromEndpoints: [{matchLabels: {app: other}}]
`)
		remote := atRemotePod()
		time.Sleep(time.Minute) // the proxy does not have the rules any more, as nobody is selected by them
		proxy.set(true, nil)
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "late")}})
		time.Sleep(2 * time.Second)
		n.wantsPath(t, proxy, remote, web, "denied", "while the proxy does not answer")
		proxy.set(false, nil)
		time.Sleep(time.Minute)
		n.wantsPath(t, proxy, remote, web, "/a", "when it answers")
		if len(c.names()) != 1 {
			t.Errorf("closed %q, want the one connection that gets rules", c.names())
		}
	})
}

// TestClosePartialWrite has a write fail when its rows are in the kernel already, after a connection was opened.
func TestClosePartialWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		kernel := newFakeKernel()
		partial := &partialKernel{fakeKernel: kernel}
		q := NewQueue(engine.Config{}, partial, proxy, nil, quiet)
		n := startQueue(t, q, t.TempDir(), kernel)
		n.prune(t)
		web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
		c := &fakeCloser{open: map[string]fakeConnection{}}
		n.queue.CloseWith(c)
		attachWithNamespaces(t, n, &web, &client, &other)
		n.put(t, webRules("client", "/a")+"  - {fromEndpoints: [{matchLabels: {app: other}}]}\n")
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "other")}})
		time.Sleep(time.Second)
		partial.fail(func() {
			c.add("remote->web", fakeConnection{netip.MustParseAddr("10.1.0.1"), web.Addresses.IPv4, 80})
		})
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "client")}})
		time.Sleep(time.Minute)
		remote := atRemotePod()
		n.wantsPath(t, proxy, remote, web, "/a", "after")
		if len(c.names()) != 1 {
			t.Errorf("closed %q, want the one connection that gets rules", c.names())
		}
	})
}

// partialKernel is a kernel of which a write fails when all of it is done.
type partialKernel struct {
	*fakeKernel
	mu        sync.Mutex // guards the field below
	meanwhile func()     // before the next write, which fails; nil: none does
}

func (k *partialKernel) fail(meanwhile func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.meanwhile = meanwhile
}

func (k *partialKernel) Apply(e *engine.Engine, changed *engine.Change, locals map[string]Local) error {
	k.mu.Lock()
	meanwhile := k.meanwhile
	k.meanwhile = nil
	k.mu.Unlock()
	if meanwhile == nil {
		return k.fakeKernel.Apply(e, changed, locals)
	}
	meanwhile()
	if err := k.fakeKernel.Apply(e, changed, locals); err != nil {
		return err
	}
	return errors.New("one of the last writes has failed")
}

// TestCloseRetries has the kernel refuse a change again and again: connections are closed once.
func TestCloseRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newFakeProxy()
		n := l7node(t, proxy, t.TempDir())
		web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
		c := &fakeCloser{open: map[string]fakeConnection{}}
		n.queue.CloseWith(c)
		attachWithNamespaces(t, n, &web, &client, &other)
		n.put(t, webRules("client", "/a")+"  - {fromEndpoints: [{matchLabels: {app: other}}]}\n")
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "other")}})
		time.Sleep(time.Second)
		n.kernel.refuseWith(errors.New("no room"))
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remotePod(1, "client")}})
		for range 600 { // the client opens its connection again each second, when it was closed
			c.add("remote->web", fakeConnection{netip.MustParseAddr("10.1.0.1"), web.Addresses.IPv4, 80})
			time.Sleep(time.Second)
		}
		remote := atRemotePod()
		n.wantsPath(t, proxy, remote, web, "anything", "all the time")
		if len(c.names()) != 1 {
			t.Errorf("closed %d times in ten minutes, want it closed by the first try alone", len(c.names()))
		}
		n.kernel.refuseWith(nil)
		time.Sleep(time.Minute)
		if len(c.names()) != 2 {
			t.Errorf("closed %d times, want it closed when the kernel has taken the change", len(c.names()))
		}
	})
}
