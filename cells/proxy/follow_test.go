package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	prometheustest "github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/testutil"
)

// fakeKernel is a [Kernel] that knows of no connection.
type fakeKernel struct {
	link    atomic.Int64
	refuses atomic.Bool // to redirect
}

func (k *fakeKernel) SetProxyLink(index int) error {
	if index != 0 && k.refuses.Load() {
		return errors.New("no map")
	}
	k.link.Store(int64(index))
	return nil
}

func (k *fakeKernel) ProxyLink() (int, error) { return int(k.link.Load()), nil }

func (k *fakeKernel) UseMaps(f func(map[string]*ebpf.Map) error) error { return f(nil) }

func (k *fakeKernel) Opener(model.Protocol, netip.AddrPort, netip.AddrPort) (Opener, error) {
	return Opener{}, ErrNoOpener
}
func (k *fakeKernel) EndpointAt(netip.Addr) (uint16, error)   { return 0, nil }
func (k *fakeKernel) Verdict(policy.Question) (uint32, error) { return 0, nil }
func (k *fakeKernel) Version(uint16) (uint32, uint32, error)  { return 0, 0, nil }
func (k *fakeKernel) AddressGeneration() (uint32, error)      { return 0, nil }

// world is a proxy in a namespace of its own.
type world struct {
	*testing.T
	node   *testutil.Namespace
	kernel *fakeKernel
	cfg    redirect.Config
	proxy  *Proxy
	server *BuiltIn // its listener
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testutil.NeedPrograms(t, "ip", "nft")
	w := &world{T: t, node: testutil.NetNS(t), kernel: &fakeKernel{}, cfg: redirect.Config{BPFRoot: testutil.BPFFS(t)}}
	w.must(w.node.Do(exec.Command("ip", "link", "set", "lo", "up").Run))
	w.start()
	t.Cleanup(func() { w.must(w.proxy.Stop(context.Background())) })
	return w
}

// start makes the proxy of an agent that has just started.
func (w *world) start() {
	w.Helper()
	var err error
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	way := redirect.New(w.cfg, w.kernel, log)
	w.server, err = NewBuiltIn(w.kernel, way, nil, Config{Config: w.cfg}, log)
	w.must(err)
	w.proxy = New(way, w.server, log)
	w.must(w.proxy.Start(w.Context()))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) prepare() error {
	return w.node.Do(func() error {
		return w.proxy.Prepare(w.Context(), map[uint32]model.Layer7{7: {HTTP: []model.HTTPRule{{Path: "/public"}}}})
	})
}

// rounds runs the task that removes what is not used.
func (w *world) rounds(n int) {
	w.Helper()
	for range n {
		w.must(w.node.Do(func() error { return w.proxy.removeUnused(w.Context()) }))
	}
}

// isThere reports whether anything of the proxy is in the kernel.
func (w *world) isThere() bool {
	w.Helper()
	var text []byte
	w.must(w.node.Do(func() (err error) {
		text, err = exec.Command("sh", "-c", "ip link; ip rule; ip -6 rule; nft list ruleset").Output()
		return err
	}))
	there := strings.Contains(string(text), "porin") || strings.Contains(string(text), "10247")
	if link, _ := w.kernel.ProxyLink(); there != (link != 0) {
		w.Errorf("the programs redirect to device %d, and there is\n%s", link, text)
	}
	return there
}

func TestRemoveUnused(t *testing.T) {
	w := newWorld(t)
	w.must(w.prepare())
	w.rounds(3)
	if !w.isThere() {
		t.Fatal("the way was removed while there are rules")
	}
	w.proxy.Release([]uint32{7})
	w.rounds(1)
	w.must(w.prepare()) // rules come again
	w.proxy.Release([]uint32{7})
	w.rounds(1)
	if !w.isThere() || !w.proxy.Status().InUse {
		t.Fatal("the way was removed right after it was needed")
	}
	open := newSession(1)
	w.must(w.server.sessions.add(open))
	w.rounds(3)
	if !w.isThere() {
		t.Fatal("the way was removed while there is a connection")
	}
	w.server.sessions.remove(open)
	w.server.meters.accepted.Add(1)
	w.rounds(2)
	if !w.isThere() {
		t.Fatal("the way was removed right after a connection")
	}
	w.rounds(1)
	if w.isThere() || w.proxy.Status() != (Status{}) {
		t.Fatalf("nothing needs the way, and it is there, status %+v", w.proxy.Status())
	}
	w.must(w.prepare())
	if !w.isThere() || w.proxy.Status() != (Status{InUse: true, RuleSets: 1}) {
		t.Fatalf("rules come after the way was removed: status %+v", w.proxy.Status())
	}
}

// Leftovers of a previous agent are removed when there are no rules.
func TestRemoveUnusedAfterStart(t *testing.T) {
	w := newWorld(t)
	w.must(w.prepare())
	w.must(w.proxy.Stop(t.Context()))
	if !w.isThere() {
		t.Fatal("a proxy that stops has removed the way: connections cannot wait for the next one")
	}
	w.start()
	w.rounds(2)
	if w.isThere() {
		t.Error("the previous agent's way is there")
	}
}

// Rules that could not be prepared are not kept, and status and health say why until it works.
func TestPrepareFails(t *testing.T) {
	w := newWorld(t)
	w.kernel.refuses.Store(true)
	if err := w.prepare(); err == nil {
		t.Fatal("rules are prepared without a way into the proxy")
	}
	var status v1.Status
	newReporter(w.proxy).Report(&status)
	condition := newReporter(w.proxy).Condition()
	if status.Proxy.InUse || status.Proxy.RuleSets != 0 || !strings.Contains(status.Proxy.Error, "no map") ||
		condition.State != supervisor.Degraded || !strings.Contains(condition.Reason, "no map") {
		t.Errorf("status %+v, condition %+v", status.Proxy, condition)
	}
	w.kernel.refuses.Store(false)
	w.must(w.prepare())
	newReporter(w.proxy).Report(&status)
	if status.Proxy != (v1.ProxyStatus{InUse: true, RuleSets: 1}) || newReporter(w.proxy).Condition().State != supervisor.OK {
		t.Errorf("status %+v, condition %+v", status.Proxy, newReporter(w.proxy).Condition())
	}
}

// The task follows a way that is opened later or again.
func TestFollowTask(t *testing.T) {
	w := newWorld(t)
	task := newFollowTask(w.proxy, w.proxy.log)
	task.Start(nil)
	t.Cleanup(func() { w.must(task.Stop(context.Background())) })
	for range 2 {
		w.must(w.prepare())
		link, _ := w.kernel.ProxyLink()
		w.must(w.node.Do(exec.Command("ip", "link", "del", "porin-l7").Run))
		testutil.Eventually(t, func() error {
			if now, _ := w.kernel.ProxyLink(); now == link {
				return errors.New("the device is not there again")
			}
			return nil
		})
		w.proxy.Release([]uint32{7})
		w.rounds(2)
	}
	if w.isThere() {
		t.Error("the way is there")
	}
}

func TestChecker(t *testing.T) {
	w := newWorld(t)
	c := newChecker(w.proxy)
	examine := func(wants ...string) (findings []doctor.Finding) {
		t.Helper()
		findings, err := c.Examine(t.Context(), "")
		w.must(err)
		var kinds []string
		for _, f := range findings {
			kinds = append(kinds, f.Kind)
		}
		if strings.Join(kinds, " ") != strings.Join(wants, " ") {
			t.Fatalf("findings %+v, want %v", findings, wants)
		}
		return findings
	}
	examine() // not open
	w.must(w.prepare())
	examine()
	for kind, script := range map[string]string{
		deviceDiffers: "echo 1 >/proc/sys/net/ipv4/conf/porin-l7/rp_filter", routesDiffer: "ip rule del pref 92", tableDiffers: "nft flush table inet porin-proxy",
	} {
		w.must(w.node.Do(exec.Command("sh", "-c", script).Run))
		w.must(examine(kind)[0].Repair(t.Context()))
		examine()
	}
	w.must(w.kernel.SetProxyLink(0))
	w.must(examine(listenerDiffers)[0].Repair(t.Context()))
	w.must(w.node.Do(exec.Command("sh", "-c", "ip link del porin-l7; ip link add porin-l7 type veth peer name other0").Run))
	if foreign := examine(deviceForeign)[0]; foreign.Repair != nil {
		t.Error("a foreign device has a repair")
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	m := w.server.meters
	m.accepted.Add(1)
	for _, err := range []error{errDenied, ErrNoOpener, errStopped, io.EOF} {
		m.refuse(err)
	}
	m.request(httpproxy.Record{Method: http.MethodGet, Verdict: httpproxy.Forwarded})
	m.request(httpproxy.Record{Verdict: httpproxy.Denied, Reason: httpproxy.ReasonNoRule})
	for _, err := range []error{nil, redirect.ErrNoPort, unix.ECONNREFUSED, unix.ENETUNREACH, context.DeadlineExceeded, context.Canceled, io.EOF} {
		if _, got := m.dialed(nil, err); got != err {
			t.Errorf("dialed returns %v for %v", got, err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(w.proxy), m)
	w.must(prometheustest.GatherAndCompare(registry, strings.NewReader(`
# HELP porin_proxy_connections Connections that go through the proxy.
# TYPE porin_proxy_connections gauge
porin_proxy_connections 0
# HELP porin_proxy_connections_accepted_total Connections that the proxy has accepted.
# TYPE porin_proxy_connections_accepted_total counter
porin_proxy_connections_accepted_total 1
# HELP porin_proxy_connections_refused_total Connections that the proxy has accepted and reset at once.
# TYPE porin_proxy_connections_refused_total counter
porin_proxy_connections_refused_total{reason="error"} 1
porin_proxy_connections_refused_total{reason="policy"} 1
porin_proxy_connections_refused_total{reason="stopping"} 1
porin_proxy_connections_refused_total{reason="unknown-client"} 1
# HELP porin_proxy_dials_failed_total Connections to servers that the proxy could not open.
# TYPE porin_proxy_dials_failed_total counter
porin_proxy_dials_failed_total{reason="canceled"} 1
porin_proxy_dials_failed_total{reason="no-port"} 1
porin_proxy_dials_failed_total{reason="other"} 1
porin_proxy_dials_failed_total{reason="refused"} 1
porin_proxy_dials_failed_total{reason="timeout"} 1
porin_proxy_dials_failed_total{reason="unreachable"} 1
# HELP porin_proxy_requests_total Requests through the proxy, and connections that ended before one, by result. The reason is empty for forwarded requests.
# TYPE porin_proxy_requests_total counter
porin_proxy_requests_total{protocol="http",reason="",verdict="forwarded"} 1
porin_proxy_requests_total{protocol="http",reason="no-rule",verdict="denied"} 1
# HELP porin_proxy_rule_sets Sets of layer 7 rules that the proxy has.
# TYPE porin_proxy_rule_sets gauge
porin_proxy_rule_sets 0
`)))
}

// meanwhile is a listener during whose Prepare something happens.
type meanwhile struct {
	Listener
	happens  func()
	released []uint32
}

func (m *meanwhile) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	m.happens()
	return m.Listener.Prepare(ctx, rules)
}

func (m *meanwhile) Release(numbers []uint32) {
	m.released = append(m.released, numbers...)
	m.Listener.Release(numbers)
}

// TestPrepareWhileStopping: rules that come when the proxy stops are not in use, and rules of requests under way stay.
func TestPrepareWhileStopping(t *testing.T) {
	w := newWorld(t)
	w.must(w.prepare())
	m := &meanwhile{Listener: w.proxy.listener}
	m.happens = func() { _, _ = w.proxy.stopAccepting() }
	w.proxy.listener = m
	err := w.proxy.Prepare(t.Context(), map[uint32]model.Layer7{7: {}, 8: {}})
	if !errors.Is(err, errNotStarted) || !slices.Equal(m.released, []uint32{8}) {
		t.Errorf("%v, released %v; want only the one that came", err, m.released)
	}
	w.must(errors.Join(w.server.Stop(t.Context()), w.proxy.redirect.Close()))
}
