package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/mapkernel"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/testutil"
)

// agent is the cells of an agent that a proxy meets, with an [envoy] as the proxy's listener.
type agent struct {
	*testing.T
	manager  endpointmanager.Manager
	policies *policy.Policies
	kernel   proxy.Kernel
	xds      *xds
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	testutil.Root(t)
	if err := netlink.AddrReplace(testutil.LinkAt(1), testutil.Address(netip.MustParsePrefix("192.0.2.1/32"))); err != nil { // a node has an address
		t.Fatal(err)
	}
	a := &agent{T: t}
	addresses, endpoints, kernel := ipam.DefaultConfig(), endpointmanager.DefaultConfig(), datapath.DefaultConfig()
	addresses.PodCIDRs = []string{"10.244.1.0/24"}
	endpoints.StateDir, kernel.BPFRoot = t.TempDir(), testutil.BPFFS(t)+"/porin"
	app := fxtest.New(t, fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), fx.Populate(&a.manager, &a.policies, &a.kernel, &a.xds),
		ipam.Module(addresses), link.Module(), policy.Module(policy.DefaultConfig()), datapath.Module(kernel), endpointmanager.Module(endpoints),
		proxy.ModuleWith(proxy.Config{Config: redirect.Config{BPFRoot: kernel.BPFRoot}}, func(x *xds) proxy.Listener { return x }),
		fx.Provide(newXDS),
		fx.Provide(func() (allocator.Refiller, link.MTU, policy.RemoteSource, policy.Flows) { return nil, nil, nil, nil }),
		fx.Provide(func(d *datapath.Datapath) proxy.Kernel { return mapkernel.New(d.Redirects(), d.Enforcer()) }),
		fx.Provide(func(i *ipam.Step, l *link.Step, p *policy.Step, x *proxy.Step, d *datapath.Step) endpoint.Steps {
			return endpoint.Steps{i, l, p, x, d}
		}),
	)
	app.RequireStart()
	t.Cleanup(app.RequireStop)
	return a
}

// pod is a container with a label app of its name.
type pod struct {
	*testutil.Namespace
	endpoint.Endpoint
	address netip.AddrPort
}

func (a *agent) pod(name string) *pod {
	a.Helper()
	p := &pod{Namespace: testutil.NetNS(a.T)}
	metadata, err := endpoint.Metadata{Labels: map[string]string{"app": name}}.Encode()
	if err != nil {
		a.Fatal(err)
	}
	spec := endpointmanagertest.Spec(name + ":eth0")
	spec.Metadata = metadata
	if p.Endpoint, err = a.manager.Create(a.Context(), spec, endpointmanagertest.OpenNamespace(a.T, p.Path())); err != nil {
		a.Fatal(err)
	}
	p.address = netip.AddrPortFrom(p.Addresses.IPv4, 80)
	return p
}

func (a *agent) serve(p *pod) {
	listener := p.Listen(a.T, p.address)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pod") })}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	a.Cleanup(func() {
		server.Close()
		<-served
	})
}

// wants expects the answer of who serves a new connection.
func (a *agent) wants(from, to *pod, path, want, when string) {
	a.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return from.Dial(to.address, time.Second)
	}}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Get("http://web" + path)
	if err != nil {
		a.Errorf("%s: %v", when, err)
		return
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), want) {
		a.Errorf("%s: %q, %v, want %q", when, body, err, want)
	}
}

// denied returns when no connection gets through.
func (a *agent) denied(from, to *pod, when string) {
	a.Helper()
	testutil.Eventually(a.T, func() error {
		conn, err := from.Dial(to.address, 500*time.Millisecond)
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("%s: a connection gets through", when)
		}
		return nil
	})
}

func (a *agent) put(ctx context.Context, path string) error {
	_, _, err := a.policies.Put(ctx, fmt.Appendf(nil, `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web}
spec: {endpointSelector: {matchLabels: {app: web}}, ingress: [{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{path: %q}]}}]}]}
`, path))
	return err
}

// putLater puts a policy when the envoy has its rules and has not answered.
func (a *agent) putLater(ctx context.Context, path string) (result chan error) {
	a.Helper()
	result = make(chan error, 1)
	go func() { result <- a.put(ctx, path) }()
	testutil.Eventually(a.T, func() error {
		if !a.xds.envoy.waits() {
			return errors.New("the listener has not got the rules")
		}
		return nil
	})
	return result
}

func (a *agent) delete(p *pod) error {
	return errors.Join(a.manager.Delete(a.Context(), p.Spec.Attachment, endpoint.DeleteConfig{}).Errors...)
}

func (a *agent) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// TestListenerAcknowledges has another listener acknowledge rules late, refuse them, and close connections.
func TestListenerAcknowledges(t *testing.T) {
	a := newAgent(t)
	web, client := a.pod("web"), a.pod("client")
	a.serve(web)
	a.wants(client, web, "/a", "pod", "without a policy")

	a.xds.envoy.set(true, nil)
	result := a.putLater(t.Context(), "/a")
	if link, err := a.kernel.ProxyLink(); err != nil || link != 0 {
		t.Errorf("packets are sent to device %d before the rules are acknowledged, %v", link, err)
	}
	a.denied(client, web, "before the rules are acknowledged")
	a.xds.envoy.set(false, nil)
	a.must(<-result)
	a.wants(client, web, "/a", "envoy", "with the rules")
	a.wants(client, web, "/b", "envoy denies", "with the rules")

	a.xds.envoy.set(true, nil)
	result = a.putLater(t.Context(), "/b")
	a.denied(client, web, "before other rules are acknowledged")
	a.xds.envoy.set(false, nil)
	a.must(<-result)
	a.wants(client, web, "/b", "envoy", "with other rules")
	a.wants(client, web, "/a", "envoy denies", "with other rules")

	refusal := errors.New("no such path")
	a.xds.envoy.set(false, refusal)
	if err := a.put(t.Context(), "/c"); !errors.Is(err, refusal) {
		t.Errorf("rules that the listener refuses: %v", err)
	}
	a.denied(client, web, "with rules that were refused")
	a.xds.envoy.set(false, nil)
	a.must(a.put(t.Context(), "/b"))
	a.wants(client, web, "/b", "envoy", "after rules that were refused")

	conn, err := client.Dial(web.address, time.Second)
	a.must(err)
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /b HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	a.must(conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
	buffer := make([]byte, 4096)
	if n, err := conn.Read(buffer); err != nil || !strings.Contains(string(buffer[:n]), "envoy") {
		t.Fatalf("%q, %v", buffer[:n], err)
	}
	a.must(a.delete(web))
	if open, accepted := a.xds.Connections(); open != 0 || accepted == 0 {
		t.Errorf("%d of %d connections are open after the deletion of their server", open, accepted)
	}
}

const openToAll = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: other}
spec: {endpointSelector: {matchLabels: {app: other}}, ingress: [{}]}
`

// TestListenerNeverAcknowledges: only who waits for its rules waits.
func TestListenerNeverAcknowledges(t *testing.T) {
	a := newAgent(t)
	web, client := a.pod("web"), a.pod("client")
	a.serve(web)
	a.must(a.put(t.Context(), "/a"))
	a.wants(client, web, "/a", "envoy", "before")
	a.xds.envoy.set(true, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := a.putLater(ctx, "/b")

	began := time.Now()
	other := a.pod("other")
	a.serve(other)
	a.wants(client, other, "/x", "pod", "a pod that came while rules wait")
	_, _, err := a.policies.Put(t.Context(), []byte(openToAll))
	a.must(err)
	if took := time.Since(began); took > time.Second {
		t.Errorf("what needs no rules took %s", took)
	}
	a.denied(client, web, "while its rules wait")
	select {
	case err := <-result:
		t.Errorf("rules that nobody has acknowledged are put: %v", err)
	default:
	}

	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who has left got %v", err)
	}
	began = time.Now()
	for _, p := range []*pod{other, web} {
		a.must(a.delete(p))
	}
	if took := time.Since(began); took > 6*time.Second { // two seconds each
		t.Errorf("deletions took %s", took)
	}
}
