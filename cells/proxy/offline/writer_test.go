package offline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy/offline"
	"porin.dev/porin/internal/testutil"
)

var quiet = slog.New(slog.DiscardHandler)

// enforcer writes the maps as the datapath's does.
type enforcer struct {
	maps policymap.Maps
	lock *policymap.Lock

	mu     sync.Mutex // guards the field below
	writer *policymap.Writer
}

func idsOf(locals map[string]policy.Local) map[string]uint16 {
	ids := map[string]uint16{}
	for key, local := range locals {
		ids[key] = local.ID
	}
	return ids
}

func (x *enforcer) AcquireLock(ctx context.Context) error {
	err := x.lock.Lock(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writer.SetLocked(err == nil)
	return err
}

func (x *enforcer) Apply(e *engine.Engine, change *engine.Change, locals map[string]policy.Local) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writer.Apply(e, change, idsOf(locals))
}

func (x *enforcer) Forget(id uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writer.Forget(id)
}

func (x *enforcer) Verdict(q policy.Question) (uint32, error) {
	return x.maps.Egress(q.Local.ID, q.Peer, q.Protocol, q.Port)
}

func (x *enforcer) Layer7() (map[uint32]bool, error) { return x.maps.Layer7() }

func (x *enforcer) OnRevision(announce func(inForce, next uint32)) { x.writer.OnRevision(announce) }

func (x *enforcer) Compare(e *engine.Engine, locals map[string]policy.Local) (list []policy.Difference, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found, err := x.writer.Compare(e, idsOf(locals))
	for _, d := range found {
		list = append(list, policy.Difference{Kind: d.Kind, Map: d.Map, Key: d.Key, Detail: d.Detail})
	}
	return list, err
}

// node has the maps and the files that agents and proxies follow each other with.
type node struct {
	maps policymap.Maps
	dir  string
}

func newNode(t testing.TB) *node {
	t.Helper()
	testutil.Root(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[bpf.Policies].MaxEntries = 64
	n := &node{dir: t.TempDir()}
	m := &n.maps
	for name, to := range map[string]**ebpf.Map{
		bpf.Policies: &m.Policies, bpf.ActiveCopy: &m.ActiveCopy, bpf.Addresses: &m.Addresses, bpf.Prefixes: &m.Prefixes, bpf.Tables: &m.Tables, bpf.Rows: &m.Rows,
	} {
		if *to, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*to).Close() })
	}
	return n
}

// lock is that of the maps, not taken.
func (n *node) lock(t testing.TB) *policymap.Lock {
	t.Helper()
	l, err := policymap.OpenLock(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// exchange is of an agent that has no proxy to ask.
type exchange struct{ offline.ClassFiles }

func (exchange) ImportNames(context.Context) {}

// agent is one that has started. It ends with stop.
type agent struct {
	node     *node
	enforcer *enforcer
	names    *policy.Names
	queue    *policy.Queue
	policies *policy.Policies
	step     *policy.Step
}

// begin starts an agent that has restored nothing yet.
func (n *node) begin(t testing.TB) *agent {
	t.Helper()
	a := &agent{node: n, enforcer: &enforcer{maps: n.maps, lock: n.lock(t), writer: policymap.New(n.maps)}}
	a.names = policy.NewNames(policy.Config{Dir: n.dir}, nil, quiet)
	a.queue = policy.NewQueue(engine.Config{}, a.enforcer, nil, a.names, quiet)
	a.queue.ExchangeNamesWith(exchange{n.classes()})
	a.policies, a.step = policy.New(policy.Config{Dir: n.dir}, a.queue, quiet), policy.NewStep(a.queue)
	if err := a.policies.Start(); err != nil {
		t.Fatal(err)
	}
	a.queue.Start(nil)
	return a
}

func (a *agent) restore(t testing.TB, live ...endpoint.Endpoint) {
	t.Helper()
	for _, ep := range live {
		if _, err := a.step.Restore(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.step.Prune(t.Context(), live); err != nil {
		t.Fatal(err)
	}
}

func (a *agent) stop(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := errors.Join(a.queue.Stop(ctx), a.policies.Stop(ctx), a.enforcer.lock.Unlock()); err != nil {
		t.Fatal(err)
	}
}

func (a *agent) put(t testing.TB, manifests string) {
	t.Helper()
	if _, _, err := a.policies.Put(t.Context(), []byte(manifests)); err != nil {
		t.Fatal(err)
	}
}

// start returns an agent that has the pod web, number 1, and the pod other, number 2, with policies.
func (n *node) start(t testing.TB, manifests string) (a *agent, web, other endpoint.Endpoint) {
	t.Helper()
	a = n.begin(t)
	web, other = pod(1, "web"), pod(2, "other")
	a.restore(t, web, other)
	a.put(t, manifests)
	return a, web, other
}

func pod(i int, app string) endpoint.Endpoint {
	ep := endpointtest.Endpoint(i)
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	ep.Metadata = fmt.Sprintf(`{"labels":{"app":%q}}`, app)
	return ep
}

// egress is a policy for the pods of app web with these rules.
func egress(name string, rules ...string) string {
	return fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: %s}
spec:
  endpointSelector: {matchLabels: {app: web}}
  egress: [%s]
`, name, strings.Join(rules, ", "))
}

func toName(pattern, port string) string {
	return fmt.Sprintf(`{toFQDNs: [{matchPattern: %q}], toPorts: [{ports: [{port: %q, protocol: TCP}]}]}`, pattern, port)
}

func (n *node) journal(t testing.TB, name string) *offline.Journal {
	t.Helper()
	j, err := offline.OpenJournal(filepath.Join(n.dir, name), offline.DefaultLimits(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (n *node) classes() offline.ClassFiles {
	return offline.NewClassFiles(filepath.Join(n.dir, "classes"), quiet)
}

func (n *node) revision(t testing.TB) uint32 {
	t.Helper()
	revision, err := n.maps.Revision()
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// classFile is the one of the policies in the datapath.
func (n *node) classFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(n.dir, "classes", fmt.Sprintf("%08x.json", n.revision(t)))
}

// TestLearnWhileAgentsDie: an agent that dies at any moment of its start leaves a proxy that knows the policies which are in the datapath.
func TestLearnWhileAgentsDie(t *testing.T) {
	n := newNode(t)
	agent, web, other := n.start(t, egress("names", toName("*.example", "443")))
	agent.stop(t)
	proxy, _ := n.proxy(t)
	for i := range 5 {
		name := fmt.Sprintf("n%d.example", i)
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()
		next := n.begin(t)
		if i%2 == 0 {
			next.restore(t, web, other)
		}
		next.stop(t)
		if err := proxy.Learn(t.Context(), web.ID, name, named(addr)); err != nil {
			t.Errorf("after agent %d: %v", i, err)
		}
		n.reaches(t, name, web, addr, 443)
	}
	files, err := os.ReadDir(filepath.Join(n.dir, "classes"))
	if err != nil || len(files) != 2 {
		t.Errorf("files %v, %v; want those of the last two revisions", files, err)
	}
}

// proxy is a writer.
func (n *node) proxy(t testing.TB) (*offline.Writer, *offline.Journal) {
	return n.proxyOf(t, "journal")
}

func (n *node) proxyOf(t testing.TB, journal string) (*offline.Writer, *offline.Journal) {
	t.Helper()
	j := n.journal(t, journal)
	t.Cleanup(func() { _ = j.Close() })
	l := offline.NewWriter(n.maps, n.lock(t), j, n.classes().Read)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, j
}

func named(addresses ...string) (list []dnsname.Address) {
	for _, text := range addresses {
		list = append(list, dnsname.Address{Addr: netip.MustParseAddr(text), TTL: time.Hour})
	}
	return list
}

// reaches compares the ports, of 22, 80 and 443, at which the pod reaches an address.
func (n *node) reaches(t testing.TB, when string, ep endpoint.Endpoint, addr string, want ...uint16) {
	t.Helper()
	var got []uint16
	for _, port := range []uint16{22, 80, 443} {
		value, err := n.maps.Egress(ep.ID, netip.MustParseAddr(addr), model.TCP, port)
		if err != nil {
			t.Fatal(err)
		}
		if value == engine.ValueAllow {
			got = append(got, port)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %s is reached at ports %v, want %v", when, addr, got, want)
	}
}

const (
	a, b, c, inBlock = "192.0.2.1", "192.0.2.2", "2001:db8::1", "198.51.100.1"
	toBlock          = `{toCIDR: [198.51.100.0/24], toPorts: [{ports: [{port: "22", protocol: TCP}]}]}`
)

// TestLearnAndImport: what a proxy learns without agent is in the datapath when Learn returns. The next agent has it from the journal with its first write, and until it
// would have expired.
func TestLearnAndImport(t *testing.T) {
	n := newNode(t)
	before, web, other := n.start(t, egress("names", toName("*.example", "443"), toName("www.*", "80"), toBlock))
	before.stop(t)

	proxy, journal := n.proxy(t)
	for _, row := range []struct {
		name      string
		addresses []dnsname.Address
	}{{"db.example", named(a)}, {"www.example", named(b, c)}, {"www.other", named(a)}, {"db.example", named(inBlock)}, {"no.rule", named("192.0.2.9")}, {"db.example", named(a)}} {
		if err := proxy.Learn(t.Context(), web.ID, row.name, row.addresses); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		n.reaches(t, when+", of two names", web, a, 80, 443)
		n.reaches(t, when+", of a name that two rules match", web, b, 80, 443)
		n.reaches(t, when+", IPv6", web, c, 80, 443)
		n.reaches(t, when+", in a block", web, inBlock, 22, 443)
		n.reaches(t, when+", of a name that no rule matches", web, "192.0.2.9")
		n.reaches(t, when+", of no name", web, "192.0.2.3")
		n.reaches(t, when+", from a pod without policy", other, "192.0.2.3", 22, 80, 443)
	}
	check("by the proxy")
	if got := proxy.Counts(); got != (offline.Counts{Learned: 6, Written: 5}) {
		t.Errorf("counts %+v, want 6 calls, and 5 addresses written", got)
	}

	next := n.begin(t)
	defer next.stop(t)
	lookups, mark := journal.List()
	next.names.Import(lookups)
	next.restore(t, web, other)
	if err := proxy.Learn(t.Context(), web.ID, "db.example", named("192.0.2.4")); !errors.Is(err, offline.ErrAgentWrites) {
		t.Errorf("while an agent is there: %v, want %v", err, offline.ErrAgentWrites)
	}
	if err := next.names.FinishImport(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := journal.Remove(mark); err != nil {
		t.Fatal(err)
	}
	check("by the next agent")
	n.reaches(t, "not learned", web, "192.0.2.4")
	if left, _ := journal.List(); len(left) > 0 {
		t.Errorf("the journal still has %v", left)
	}
	next.put(t, egress("more", toName("no.rule", "22")))
	n.reaches(t, "with a rule that came later", web, "192.0.2.9", 22)
}

// TestInForce: what is in the datapath, while an agent is there and while none is.
func TestInForce(t *testing.T) {
	n := newNode(t)
	agent, web, other := n.start(t, egress("names", toName("*.example", "443")))
	if err := policy.LearnAndWait(t.Context(), agent.names, web.ID, "www.example", named(a, c)); err != nil {
		t.Fatal(err)
	}
	proxy, _ := n.proxy(t)
	check := func(when string) {
		t.Helper()
		for _, row := range []struct {
			name      string
			addresses []dnsname.Address
			want      bool
		}{
			{"www.example", named(a, c), true}, {"db.example", named(a), true}, {"www.example", named(a, "192.0.2.77"), false}, {"no.rule", named(b), true},
			{"www.example", named(other.Addresses.IPv4.String()), true}, {"www.example", nil, true},
		} {
			if got := proxy.InForce(row.name, row.addresses); got != row.want {
				t.Errorf("%s: %s with %v: %t, want %t", when, row.name, row.addresses, got, row.want)
			}
		}
	}
	check("an agent is there")
	if err := policy.LearnAndWait(t.Context(), agent.names, web.ID, "www.example", named(b)); err != nil {
		t.Fatal(err)
	}
	if !proxy.InForce("www.example", named(b)) {
		t.Error("an address that the agent has learned meanwhile is not in force")
	}
	if err := policy.LearnAndWait(t.Context(), agent.names, web.ID, "db.example", named(c)); err != nil {
		t.Fatal(err)
	}
	agent.stop(t)
	if err := proxy.Learn(t.Context(), web.ID, "www.example", named(a)); err != nil {
		t.Fatal(err)
	}
	check("no agent is there")
	if err := os.Remove(n.classFile(t)); err != nil {
		t.Fatal(err)
	}
	if fresh, _ := n.proxyOf(t, "other"); fresh.InForce("www.example", named(a)) {
		t.Error("in force by policies that are not known")
	}
}

// TestUseMaps writes the maps that it was given last.
func TestUseMaps(t *testing.T) {
	old, now := newNode(t), newNode(t)
	var web endpoint.Endpoint
	for _, n := range []*node{old, now} {
		var agent *agent
		agent, web, _ = n.start(t, egress("names", toName("*.example", "443")))
		agent.stop(t)
	}
	old.dir = now.dir
	proxy, _ := old.proxy(t)
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); !errors.Is(err, offline.ErrStale) {
		t.Errorf("with other maps: %v, want %v", err, offline.ErrStale)
	}
	if err := proxy.UseMaps(now.maps, now.lock(t)); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); err != nil {
		t.Fatal(err)
	}
	old.reaches(t, "in the maps of before", web, a)
	now.reaches(t, "in those of now", web, a, 443)
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); !errors.Is(err, offline.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, offline.ErrClosed)
	}
}

// TestLearnByTheNextProxy: a proxy that was killed has left what the next one and the agent need.
func TestLearnByTheNextProxy(t *testing.T) {
	n := newNode(t)
	before, web, _ := n.start(t, egress("names", toName("*.example", "443")))
	before.stop(t)
	proxy, journal := n.proxy(t)
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); err != nil {
		t.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	proxy, journal = n.proxy(t)
	if err := proxy.Learn(t.Context(), web.ID, "b.example", named(b)); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, "by the next proxy", web, a, 443)
	n.reaches(t, "by the next proxy", web, b, 443)
	if lookups, _ := journal.List(); len(lookups) != 2 {
		t.Errorf("the journal has %v, want two names", lookups)
	}
}

// TestImportLate: an agent that hears of what a proxy has written when it has written its own policies takes it, and removes what it does not want.
func TestImportLate(t *testing.T) {
	n := newNode(t)
	before, web, other := n.start(t, egress("names", toName("*.example", "443")))
	before.stop(t)
	proxy, journal := n.proxy(t)
	if err := errors.Join(proxy.Learn(t.Context(), web.ID, "a.example", named(a)), proxy.Learn(t.Context(), 60, "gone.example", named(b))); err != nil {
		t.Fatal(err)
	}
	agent := n.begin(t)
	defer agent.stop(t)
	agent.restore(t, web, other)
	lookups, _ := journal.List()
	agent.names.Import(lookups)
	if err := agent.names.FinishImport(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, "imported", web, a, 443)
	n.reaches(t, "of an endpoint that is not there", web, b)
}

// TestLearnBesideAgent: while an agent is there nothing is written, whether it has told the proxy of itself or not; when it is gone, names are learned.
func TestLearnBesideAgent(t *testing.T) {
	n := newNode(t)
	agent, web, _ := n.start(t, egress("names", toName("*.example", "443")))
	proxy, journal := n.proxy(t)
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); !errors.Is(err, offline.ErrAgentWrites) {
		t.Errorf("beside an agent: %v, want %v", err, offline.ErrAgentWrites)
	}
	n.reaches(t, "beside an agent", web, a)
	if lookups, _ := journal.List(); len(lookups) > 0 {
		t.Errorf("the journal has %v", lookups)
	}
	agent.stop(t)
	if err := proxy.Learn(t.Context(), web.ID, "a.example", named(a)); err != nil {
		t.Error(err)
	}
	n.reaches(t, "when the agent is gone", web, a, 443)
}

// TestAgentBesideSuspendedProxy: a proxy that was suspended while it writes keeps no agent from writing policies. It writes nothing when it goes on, and no other proxy
// learns; when it lets go, the agent owns the maps, and proxies know what it has reserved.
func TestAgentBesideSuspendedProxy(t *testing.T) {
	n := newNode(t)
	before, web, other := n.start(t, egress("names", toName("*.example", "443")))
	before.stop(t)
	suspended, revision := n.lock(t), n.revision(t)
	if err := suspended.TryLock(); err != nil {
		t.Fatal(err)
	}
	classes, err := n.classes().Read(revision)
	if err != nil {
		t.Fatal(err)
	}
	var move policymap.NameMove
	for _, class := range classes.Classes {
		if len(class.Rules) > 0 {
			move = policymap.NameMove{Address: netip.MustParseAddr(a), From: engine.FixedClass(model.World), To: class.Class}
		}
	}
	late := policymap.NewNameWriter(n.maps)
	defer late.Close()

	agent := n.begin(t)
	defer agent.stop(t)
	agent.restore(t, web, other)
	agent.put(t, egress("names", toName("*.test", "80")))
	if err := late.Move(revision, []policymap.NameMove{move}); !errors.Is(err, policymap.ErrOtherRevision) {
		t.Errorf("a proxy that goes on: %v, want %v", err, policymap.ErrOtherRevision)
	}
	n.reaches(t, "by a proxy that goes on", web, a)
	if _, err := n.classes().Read(n.revision(t)); err == nil {
		t.Error("proxies are told of policies while one of them may write")
	}
	if err := suspended.Unlock(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		_, err := n.classes().Read(n.revision(t))
		return err
	})
	proxy, _ := n.proxy(t)
	if err := proxy.Learn(t.Context(), web.ID, "a.test", named(a)); !errors.Is(err, offline.ErrAgentWrites) {
		t.Errorf("beside the agent: %v, want %v", err, offline.ErrAgentWrites)
	}
}

// TestLearnWithoutJournal: a journal that is missing or cannot be written is needed only for addresses that the datapath does not have.
func TestLearnWithoutJournal(t *testing.T) {
	n := newNode(t)
	agent, web, _ := n.start(t, egress("names", toName("*.example", "443")))
	agent.stop(t)
	proxy, journal := n.proxy(t)
	learn := func(w *offline.Writer, name, addr string, want error) {
		t.Helper()
		if err := w.Learn(t.Context(), web.ID, name, named(addr)); !errors.Is(err, want) || (w.JournalError() != nil) != (want != nil && w == proxy) {
			t.Errorf("%s: %v, and of the journal %v; want %v", name, err, w.JournalError(), want)
		}
	}
	learn(proxy, "www.example", a, nil)
	none := offline.NewWriter(n.maps, n.lock(t), nil, n.classes().Read)
	defer none.Close()
	for _, w := range []*offline.Writer{none, proxy} {
		if w == proxy { // its journal cannot be written from now on
			if err := journal.Close(); err != nil {
				t.Fatal(err)
			}
		}
		learn(w, "www.example", b, offline.ErrNoJournal)
		n.reaches(t, "not learned", web, b)
	}
	learn(none, "www.example", a, nil)
	learn(none, "other.example", a, nil)
	learn(none, "www.none", b, nil)
	if counts := none.Counts(); counts.Learned != 3 || counts.NoJournal != 1 {
		t.Errorf("%+v, want 3 that were learned, and one without journal", counts)
	}
	none.UseJournal(n.journal(t, "journal"))
	learn(none, "www.example", b, nil)
	n.reaches(t, "with the journal", web, b, 443)
	if err := proxy.Learn(t.Context(), web.ID, "www.none", named(b)); err != nil || proxy.JournalError() == nil {
		t.Errorf("a name that no rule selects: %v, and of the journal %v", err, proxy.JournalError())
	}
	if err := proxy.Learn(t.Context(), web.ID, "www.example", []dnsname.Address{{Addr: netip.MustParseAddr(a), TTL: 3 * time.Hour}}); err != nil {
		t.Errorf("an address of the datapath, for longer than the journal says: %v", err)
	}
}

// TestLearnRefuses: what cannot be used is an error, at once, and changes nothing.
func TestLearnRefuses(t *testing.T) {
	n := newNode(t)
	agent, web, other := n.start(t, egress("names", toName("*.example", "443")))
	defer agent.stop(t)
	agent.queue.SetRemote(policy.RemoteChange{
		Set:       []model.Endpoint{{Key: policy.RemotePrefix + "node", Kind: model.RemoteNode, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.50")}}},
		SetBlocks: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")},
	})
	agent.put(t, egress("others", toName("*.test", "80"))) // which is written after that
	if err := agent.enforcer.lock.Unlock(); err != nil {   // as if it was gone
		t.Fatal(err)
	}
	proxy, journal := n.proxy(t)
	learn := func(name string, addresses ...string) error {
		return proxy.Learn(t.Context(), web.ID, name, named(addresses...))
	}

	for _, row := range []struct{ what, addr string }{
		{"a pod's", other.Addresses.IPv4.String()}, {"a pod's, as IPv6", "::ffff:10.0.0.2"}, {"another node's", "192.0.2.50"}, {"of another node's pods", "10.9.0.7"},
		{"of a metadata service", "169.254.169.254"}, {"link-local", "fe80::1"}, {"loopback", "127.0.0.1"}, {"multicast", "224.0.0.1"}, {"unspecified", "0.0.0.0"},
	} {
		if err := learn("www.example", row.addr); !errors.Is(err, offline.ErrProtected) {
			t.Errorf("an address %s: %v, want %v", row.what, err, offline.ErrProtected)
		}
		n.reaches(t, row.what, web, row.addr)
		if err := learn("www.none", row.addr); err != nil {
			t.Errorf("an address %s, of a name that no rule matches: %v", row.what, err)
		}
	}
	if err := learn("www.example", other.Addresses.IPv4.String(), a); !errors.Is(err, offline.ErrProtected) {
		t.Errorf("one of two addresses is a pod's: %v, want %v", err, offline.ErrProtected)
	}
	n.reaches(t, "the other one of two", web, a, 443)

	var many []string
	for i := range 1001 {
		many = append(many, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String())
	}
	if err := learn("many.example", many...); !errors.Is(err, offline.ErrFull) {
		t.Errorf("too many addresses of a name: %v, want %v", err, offline.ErrFull)
	}
	n.reaches(t, "of too many", web, many[0])

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := proxy.Learn(canceled, web.ID, "www.example", named(b)); !errors.Is(err, context.Canceled) {
		t.Errorf("when nobody waits any more: %v", err)
	}
	agent.put(t, egress("more", toName("*.more", "80")))
	kept, err := os.ReadFile(n.classFile(t))
	if err != nil {
		t.Fatal(err)
	}
	class := func(number int, rule int) string {
		return fmt.Sprintf(`{"revision": %d, "rules": [{"name": "a.b"}], "classes": [{"class": %d, "rules": [%d]}]}`, n.revision(t), number, rule)
	}
	for _, text := range []string{
		"", "{", `{"revision": 1}`, fmt.Sprintf(`{"revision": %d, "rules": [{"name": "a..b"}]}`, n.revision(t)), class(9, 1), class(9, -1),
	} {
		if err := os.WriteFile(n.classFile(t), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"www.example", "www.none"} {
			if err := learn(name, b); !errors.Is(err, offline.ErrStale) {
				t.Errorf("%s, with policies in the datapath of which it has %q: %v, want %v", name, text, err, offline.ErrStale)
			}
		}
	}
	n.reaches(t, "with other policies", web, b)
	if err := os.WriteFile(n.classFile(t), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := learn("c.more", c); err != nil {
		t.Errorf("a rule that came later: %v", err)
	}
	n.reaches(t, "a rule that came later", web, c, 80)
	lookups, _ := journal.List()
	if i := slices.IndexFunc(lookups, func(l names.Lookup) bool { return l.Name == "www.example" }); i < 0 || len(lookups[i].Addresses) != 1 || len(lookups) != 3 {
		t.Errorf("the journal has %+v, want one address of www.example, c.more, and the name without rule", lookups)
	}
}

// TestLearnNotReserved: the rules that there are too many of have no class, which is said at once; what an agent has learned for them before stays.
func TestLearnNotReserved(t *testing.T) {
	n := newNode(t)
	var rules []string
	for i := range 300 {
		rules = append(rules, toName(fmt.Sprintf("n%d.example", i), "443"))
	}
	agent, web, _ := n.start(t, egress("names", rules...))
	if err := policy.LearnAndWait(t.Context(), agent.names, web.ID, "n299.example", named(c)); err != nil {
		t.Fatal(err)
	}
	agent.stop(t)
	proxy, _ := n.proxy(t)
	for name, want := range map[string]error{"n0.example": nil, "n298.example": offline.ErrNotReserved} {
		if err := proxy.Learn(t.Context(), web.ID, name, named(a)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if err := proxy.Learn(t.Context(), web.ID, "n298.example", named(b)); !errors.Is(err, offline.ErrNotReserved) {
		t.Errorf("an address that has no name: %v, want %v", err, offline.ErrNotReserved)
	}
	n.reaches(t, "without a class", web, b)
	if err := proxy.Learn(t.Context(), web.ID, "n299.example", named(c)); err != nil {
		t.Errorf("an address that is in force: %v", err)
	}
	n.reaches(t, "in force", web, c, 443)
}

// BenchmarkLearn is what a query of a known name costs.
func BenchmarkLearn(bm *testing.B) {
	n := newNode(bm)
	agent, web, _ := n.start(bm, egress("names", toName("*.example", "443")))
	agent.stop(bm)
	proxy, _ := n.proxy(bm)
	addresses := named(a, b, c)
	bm.ReportAllocs()
	for bm.Loop() {
		if err := proxy.Learn(bm.Context(), web.ID, "www.example", addresses); err != nil {
			bm.Fatal(err)
		}
	}
}
