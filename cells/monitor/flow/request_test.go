package flow

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
)

const webWithRules = `apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: test, namespace: default}
spec: {
  endpointSelector: {matchLabels: {app: client}},
  egress: [{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{path: /public}]}}]},
           {toPorts: [{ports: [{port: "53", protocol: UDP}], rules: {dns: [{matchPattern: "*.example.com"}]}}]}]}
`

// ask has the proxy tell of a request to a server.
func (w *world) ask(server string, r accesslog.Request) {
	r.Time, r.Endpoint, r.Client, r.Server = time.Now(), 2, netip.MustParseAddrPort("10.0.0.2:41234"), netip.MustParseAddrPort(server)
	w.requests.Add(r)
}

func get(path string, status int, verdict accesslog.Verdict, reason string) accesslog.Request {
	return accesslog.Request{Protocol: model.TCP, HTTP: accesslog.NewHTTP("GET", "web.example", path, status), Verdict: verdict, Reason: reason}
}

func asked(name string, kind uint16, code int, verdict accesslog.Verdict, reason string) accesslog.Request {
	return accesslog.Request{Protocol: model.UDP, DNS: &accesslog.DNS{Name: name, Type: kind, Code: code}, Verdict: verdict, Reason: reason}
}

// TestRequests has one request of each verdict.
func TestRequests(t *testing.T) {
	w := newWorld(t, 100)
	w.pod(1, "web")
	w.pod(2, "client")
	w.putManifest(webWithRules)
	w.ask("10.0.0.1:80", get("/public", 200, accesslog.Allowed, ""))
	w.ask("10.0.0.1:80", get("/admin", 403, accesslog.Denied, "no-rule"))
	w.ask("198.51.100.9:80", get("/public", 502, accesslog.Allowed, "server-closed"))
	w.ask("198.51.100.9:80", get("", 400, accesslog.Refused, "invalid-request-line"))
	w.ask("10.0.0.1:80", get("/later", 200, "a word of a later version", ""))
	w.ask("10.0.0.1:53", asked("www.example.com", 28, 0, accesslog.Allowed, ""))
	w.ask("10.0.0.1:53", asked("www.example.org", 1, 3, accesslog.Denied, "policy"))
	w.ask("10.0.0.1:53", asked("", 0, -1, accesslog.Refused, "malformed"))
	w.ask("10.0.0.1:53", asked("www.example.com", 65280, 23, accesslog.Allowed, ""))
	w.tell()
	w.wants("what clients have asked for",
		"allowed proxy client:41234 -> web:80 GET web.example/public 200, egress rule 0 of test",
		"denied proxy client:41234 -> web:80 GET web.example/admin 403, no-rule, egress rule 0 of test",
		"allowed proxy client:41234 -> world 198.51.100.9:80 GET web.example/public 502, server-closed, egress rule 0 of test",
		"dropped proxy client:41234 -> world 198.51.100.9:80 GET web.example 400, invalid-request-line, egress rule 0 of test",
		"dropped proxy client:41234 -> web:80 GET web.example/later 200, egress rule 0 of test",
		"allowed proxy client:41234 -> web:53 AAAA www.example.com NOERROR, egress rule 1 of test",
		"denied proxy client:41234 -> web:53 A www.example.org NXDOMAIN, policy, egress rule 1 of test",
		"dropped proxy client:41234 -> web:53   , malformed, egress rule 1 of test",
		"allowed proxy client:41234 -> web:53 TYPE65280 www.example.com RCODE23, egress rule 1 of test",
	)
	for query, want := range map[string][]uint64{
		"?protocol=http": {1, 2, 3, 4, 5}, "?protocol=dns": {6, 7, 8, 9}, "?protocol=udp": {6, 7, 8, 9}, "?protocol=HTTP&verdict=denied": {2},
		"?name=web.example": {1, 2, 3, 4, 5}, "?name=*.example.com": {6, 9}, "?name=*": {1, 2, 3, 4, 5, 6, 7, 9}, "?not=protocol%3Dhttp": {6, 7, 8, 9},
		"?direction=ingress": nil, "?direction=egress&port=53&policy=test": {6, 7, 8, 9},
	} {
		var got []uint64
		for _, f := range w.told(query) {
			got = append(got, f.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: flows %v, want %v", query, got, want)
		}
	}
	if flows, _ := w.Recent(); len(flows) > 0 {
		t.Errorf("%+v: requests count as connections", flows)
	}
	if counts := w.Counts(); counts.Verdicts != [verdicts]uint64{} {
		t.Errorf("%+v: requests count as packets", counts)
	}
}

// TestRequestOfOther: a request of another node's pod, and a policy that has changed since.
func TestRequestOfOther(t *testing.T) {
	w := newWorld(t, 100)
	w.pod(1, "web")
	w.remotePod(7, "far")
	r := get("/public", 200, accesslog.Allowed, "")
	r.Time, r.Endpoint, r.Client, r.Server = time.Now(), 1, netip.MustParseAddrPort("10.0.1.7:41234"), netip.MustParseAddrPort("10.0.0.1:80")
	w.requests.Add(r)
	w.tell()
	w.policy("isolated", "{podSelector: {matchLabels: {app: web}}}")
	w.requests.Add(r)
	w.tell()
	const want = "allowed proxy far:41234 -> web:80 GET web.example/public 200"
	w.wants("a pod of another node", want, want)
	if flows := w.told("?direction=ingress"); len(flows) != 2 {
		t.Errorf("%d flows are seen at the receiver's end, want both", len(flows))
	}
}

// TestProxiedConnections: a connection is told of where it goes into the proxy, and a datagram by its query alone.
func TestProxiedConnections(t *testing.T) {
	w := newWorld(t, 100)
	w.pod(1, "web")
	w.pod(2, "client")
	w.putManifest(webWithRules)
	into := func(place uint8, to string, port uint16, protocol model.Protocol) abi.FlowEvent {
		e := seen(2, place, tuple("10.0.0.2", clientPort, to, port))
		e.Path, e.Protocol = abi.PathProxy, uint8(protocol)
		return e
	}
	up := func(to string, port uint16, protocol model.Protocol) abi.FlowEvent {
		e := toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, to, port)))
		e.Protocol = uint8(protocol)
		return e
	}
	toWeb := into(abi.EventToPod, "10.0.0.1", 80, model.TCP)
	toWeb.Id = 1
	w.tell(
		up("10.0.0.1", 80, model.TCP), toWeb,
		up(outside, 80, model.TCP), into(abi.EventToUplink, outside, 80, model.TCP),
		up(outside, 53, model.UDP), into(abi.EventToUplink, outside, 53, model.UDP),
		up(nodeAddr, 80, model.TCP), up(nodeAddr, 53, model.UDP), // the node itself: nothing else tells
	)
	w.wants("each once",
		"allowed to-pod client:41234 -> web:80, egress rule 0 of test",
		"allowed to-uplink client:41234 -> world 198.51.100.9:80, egress rule 0 of test",
		"allowed from-pod client:41234 -> host 192.0.2.1:80, egress rule 0 of test",
	)
	if flows, _ := w.Recent(); len(flows) != 5 {
		t.Errorf("%d distinct flows, want 5: %+v", len(flows), flows)
	}
	w.proxy.err = errors.New("porin-proxy is not connected")
	w.tell(into(abi.EventToUplink, outside, 53, model.UDP))
	if flows := w.told("?protocol=udp"); len(flows) != 1 {
		t.Errorf("%d datagrams are shown that a proxy has not got, want the one", len(flows))
	}
}

// TestRequestsLost: a line says how many requests and events were lost.
func TestRequestsLost(t *testing.T) {
	w := newWorld(t, 100)
	w.requests.Append(nil, 7)
	w.source.lost = 3
	w.tell()
	if flows := w.told(""); len(flows) != 1 || flows[0].Lost != 10 {
		t.Errorf("flows %+v, want that 10 were lost", flows)
	}
}

// BenchmarkRequest is one request, from the proxy's to what clients get.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b, 10_000)
	w.pod(1, "web")
	w.pod(2, "client")
	w.putManifest(webWithRules)
	w.index()
	r := get("/public", 200, accesslog.Allowed, "")
	b.ReportAllocs()
	for b.Loop() {
		r.Time, r.Client, r.Server = time.Now(), netip.MustParseAddrPort("10.0.0.2:41234"), netip.MustParseAddrPort("10.0.0.1:80")
		w.requests.Append([]accesslog.Request{r}, 0)
		w.tell()
	}
}
