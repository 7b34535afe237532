package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/conntrack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The node's own address, one outside, a Service, and the ports that packets have.
const (
	nodeAddr, outside, service = "192.0.2.1", "198.51.100.9", "10.96.0.1"
	clientPort, httpPort       = 41234, 80
)

// world has a collector with the real policies of a node, and fakes around them.
type world struct {
	testing.TB
	*Collector
	endpoints *endpointtest.Endpoints
	queue     *policy.Queue
	step      *policy.Step
	policies  *policy.Policies
	resolved  *policy.Names
	source    fakeSource
	requests  accesslog.Log
	proxy     fakeProxy
	stack     fakeStack
}

func newWorld(t testing.TB, flows int) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	names := policy.NewNames(policy.Config{}, nil, log)
	queue := policy.NewQueue(engine.Config{}, nil, fakeProxy{}, names, log)
	w := &world{TB: t, resolved: names, queue: queue, endpoints: endpointtest.NewEndpoints(), step: policy.NewStep(queue), policies: policy.New(policy.Config{}, queue, log), stack: fakeStack{}}
	queue.Start(nil)
	t.Cleanup(func() { _ = queue.Stop(t.Context()) })
	if err := errors.Join(w.policies.Start(), queue.Open(t.Context())); err != nil {
		t.Fatal(err)
	}
	var err error
	w.Collector, err = New(Config{Flows: flows}, Params{Source: &w.source, Requests: &w.requests, Proxy: &w.proxy, Translations: w.stack, Policies: host{queue.View()}, Names: names, Endpoints: w.endpoints, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// fakeProxy takes all rules, and sees no connection.
type fakeProxy struct{ err error }

func (fakeProxy) Supports(model.Layer7) error                            { return nil }
func (fakeProxy) Prepare(context.Context, map[uint32]model.Layer7) error { return nil }
func (p fakeProxy) Healthy() error                                       { return p.err }
func (fakeProxy) Changed()                                               {}
func (fakeProxy) Release([]uint32)                                       {}

// fakeSource has events.
type fakeSource struct {
	events []abi.FlowEvent
	lost   uint64
	err    error
}

func (s *fakeSource) Read(each func(*abi.FlowEvent) bool) (uint64, error) {
	for len(s.events) > 0 && s.err == nil {
		e := s.events[0]
		s.events = s.events[1:]
		if !each(&e) {
			break
		}
	}
	return s.lost, s.err
}

// fakeStack is what conntrack knows, by the packets of both directions.
type fakeStack map[conntrack.Tuple]conntrack.Connection

func (s fakeStack) Translate(_ uint8, packet conntrack.Tuple, _ bool) (conntrack.Connection, bool, error) {
	if s == nil {
		return conntrack.Connection{}, false, errors.New("no conntrack")
	}
	t, found := s[packet]
	return t, found, nil
}

func (s fakeStack) add(original, reply conntrack.Tuple) {
	t := conntrack.Connection{Original: original, Reply: reply}
	s[original], s[reply] = t, t
}

// host adds the node's address to what the policies know.
type host struct{ *policy.View }

func (h host) Evaluate(from, to netip.Addr, protocol model.Protocol, port uint16) engine.Verdict {
	v := h.View.Evaluate(from, to, protocol, port)
	for _, end := range []*engine.End{&v.From, &v.To} {
		if end.Address.String() == nodeAddr {
			end.Kind, end.Class, end.Endpoint = model.Host, 99, "host"
		}
	}
	return v
}

// pod makes an endpoint with the address 10.0.0.i and the label app.
func (w *world) pod(i int, app string) endpoint.Endpoint {
	w.Helper()
	ep := endpointtest.Endpoint(i)
	ep.Spec.Pod.Name, ep.Spec.Attachment.ContainerID = app, app
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	ep.Metadata = fmt.Sprintf(`{"labels":{"app":%q}}`, app)
	w.endpoints.Put(ep)
	if _, err := w.step.Attach(w.Context(), ep, nil); err != nil {
		w.Fatal(err)
	}
	return ep
}

// remotePod has another node's pod with the address 10.0.1.i and the label app be known.
func (w *world) remotePod(i int, app string) {
	w.Helper()
	w.queue.SetRemote(policy.RemoteChange{Set: []model.Endpoint{{
		Key: fmt.Sprintf("%s1/10.0.1.%d", policy.RemotePrefix, i), Kind: model.Pod, Namespace: "default", Name: app, Labels: map[string]string{"app": app},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})},
	}}})
	if err := w.queue.Open(w.Context()); err != nil { // returns when it is written
		w.Fatal(err)
	}
}

func (w *world) policy(name, spec string) {
	w.Helper()
	w.put("{name: "+name+", namespace: default}", spec)
}

func (w *world) put(metadata, spec string) {
	w.Helper()
	w.putManifest("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: " + metadata + "\nspec: " + spec + "\n")
}

func (w *world) putManifest(manifest string) {
	w.Helper()
	if _, _, err := w.policies.Put(w.Context(), []byte(manifest)); err != nil {
		w.Fatal(err)
	}
}

func tuple(from string, fromPort uint16, to string, toPort uint16) conntrack.Tuple {
	return conntrack.Tuple{Source: netip.AddrPortFrom(netip.MustParseAddr(from), fromPort), Destination: netip.AddrPortFrom(netip.MustParseAddr(to), toPort)}
}

// seen is an event of now about a TCP packet.
func seen(id uint16, place uint8, packet conntrack.Tuple) abi.FlowEvent {
	return abi.FlowEvent{
		Time: uint64(boottime.Now()), Id: id, Place: place, Protocol: uint8(model.TCP), Length: 74,
		Source: abi.AddrOf(packet.Source.Addr()), SourcePort: abi.Port(packet.Source.Port()),
		Destination: abi.AddrOf(packet.Destination.Addr()), DestinationPort: abi.Port(packet.Destination.Port()),
	}
}

func shortcut(e abi.FlowEvent) abi.FlowEvent {
	e.Path = abi.PathShortcut
	return e
}

func toStack(e abi.FlowEvent) abi.FlowEvent {
	e.Path = abi.PathStack
	return e
}

func droppedFor(reason abi.DropReason, e abi.FlowEvent) abi.FlowEvent {
	e.Reason = uint8(reason)
	return e
}

// tell has the collector read the events.
func (w *world) tell(events ...abi.FlowEvent) {
	w.Helper()
	w.source.events = append(w.source.events, events...)
	if err := w.read(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// told are the flows that the query asks for.
func (w *world) told(query string) (flows []v1.Flow) {
	w.Helper()
	answer := w.get(query)
	if answer.Code != http.StatusOK {
		w.Fatalf("flows%s: %d %s", query, answer.Code, answer.Body)
	}
	for body := json.NewDecoder(answer.Body); ; {
		var flow v1.Flow
		if err := body.Decode(&flow); errors.Is(err, io.EOF) {
			return flows
		} else if err != nil {
			w.Fatal(err)
		}
		if time.Since(flow.Time).Abs() > time.Minute {
			w.Errorf("the time of %+v is not of now", flow)
		}
		flows = append(flows, flow)
	}
}

func (w *world) get(query string) *httptest.ResponseRecorder {
	r, answer := chi.NewRouter(), httptest.NewRecorder()
	w.Mount(r)
	r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v1/flows"+query, nil))
	return answer
}

// summary is what tells flows apart in these tests: verdict, ends, Service, and who has decided.
func summary(f v1.Flow) string {
	end := func(e v1.FlowEnd) string {
		name := e.Kind + " " + e.Address.String()
		if e.Pod.Name != "" {
			name = e.Pod.Name
			if e.Labels["app"] != name {
				name += " without its labels"
			}
		}
		return fmt.Sprintf("%s:%d", name, e.Port)
	}
	if f.Lost > 0 {
		return fmt.Sprintf("%d lost", f.Lost)
	}
	text := fmt.Sprintf("%s %s %s -> %s", f.Verdict, f.Place, end(f.From), end(f.To))
	if f.HTTP != nil {
		text += fmt.Sprintf(" %s %s%s %d", f.HTTP.Method, f.HTTP.Host, f.HTTP.Path, f.HTTP.Status)
	}
	if f.DNS != nil {
		text += fmt.Sprintf(" %s %s %s", f.DNS.Type, f.DNS.Name, f.DNS.Code)
	}
	if f.Service.Address.IsValid() {
		text += " by " + f.Service.Address.String()
	}
	if f.Reply {
		text += ", reply"
	}
	if f.Reason != "" {
		text += ", " + f.Reason
	}
	for _, d := range []*v1.PolicyDecision{f.Egress, f.Ingress} {
		if d != nil && d.Rule != nil {
			text += fmt.Sprintf(", %s rule %d of %s", d.Rule.Direction, d.Rule.Index, d.Rule.Policy)
		}
	}
	return text
}

func (w *world) wants(when string, want ...string) {
	w.Helper()
	var got []string
	for _, f := range w.told("") {
		got = append(got, summary(f))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", when, diff)
	}
}
