package policy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// call is a client of the routes: it returns the status, and the body or the problem.
func call(n *node, live ...endpoint.Endpoint) func(method, path, body string) (int, string) {
	table := endpointtest.NewEndpoints()
	for _, ep := range live {
		table.Put(ep)
	}
	router := chi.NewRouter()
	routes{Policies: n.policies, Endpoints: table, Flows: n.flows}.Mount(router)
	return func(method, path, body string) (int, string) {
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest(method, path, strings.NewReader(body)))
		return recorder.Code, recorder.Body.String()
	}
}

func TestPoliciesOverHTTP(t *testing.T) {
	n := servingNode(t, t.TempDir())
	ask := call(n)
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/v1/policy", "", 200, `[]`},
		{"PUT", "/v1/policy", toWebFrom("client"), 200, `[{"kind":"NetworkPolicy","namespace":"default","name":"web","tier":"networkpolicy","egress":-1,"ingress":1,"source":"file","reports":["selects no pod of this node"],"outcome":"created"}]`},
		{"PUT", "/v1/policy", toWebFrom("client"), 200, `"outcome":"unchanged"`},
		{"PUT", "/v1/policy", twoPolicies, 200, `"name":"first","tier":"admin","priority":7,"egress":-1,"ingress":1,"source":"file","reports":["equal priority 7 in tier admin: evaluated in the order of kind and name","selects no pod of this node"],"outcome":"created"}`},
		{"GET", "/v1/policy", "", 200, `{"kind":"NetworkPolicy","namespace":"default","name":"web","tier":"networkpolicy","egress":-1,"ingress":1,"source":"file"}]`},
		{"GET", "/v1/policy/networkpolicy/default/web", "", 200, `"manifest":{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy"`},
		{"GET", "/v1/policy/ClusterNetworkPolicy/first", "", 200, `"manifest":{"apiVersion":"policy.networking.k8s.io/v1alpha2"`},
		{"GET", "/v1/policy/NetworkPolicy/default/other", "", 404, `NetworkPolicy default/other: no such policy`},
		{"GET", "/v1/policy/Pod/default/web", "", 400, `want NetworkPolicy, ClusterNetworkPolicy`},
		{"GET", "/v1/policy/NetworkPolicy/web", "", 400, `a NetworkPolicy has a namespace`},
		{"GET", "/v1/policy/ClusterNetworkPolicy/default/web", "", 400, `a ClusterNetworkPolicy has no namespace`},
		{"DELETE", "/v1/policy/ClusterNetworkPolicy/first", "", 204, ""},
		{"DELETE", "/v1/policy/ClusterNetworkPolicy/first", "", 404, `no such policy`},
		{"DELETE", "/v1/policy/NetworkPolicy/default/web", "", 204, ""},
		{"PUT", "/v1/policy", strings.Replace(twoPolicies, "subject:", "subjects:", 1), 400, `document 1, line 2 (ClusterNetworkPolicy first): unknown field`},
		{"PUT", "/v1/policy", "kind: Pod\napiVersion: v1\n", 400, `not a kind of policy that is known here`},
		{"PUT", "/v1/policy", "", 400, `want one document or more`},
		{"PUT", "/v1/policy", strings.Repeat("# \n", 1<<19), 413, `in several calls`},
		{"GET", "/v1/policy", "", 200, `[{"kind":"ClusterNetworkPolicy","name":"second"`},
	} {
		status, answer := ask(step.method, step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", step.method, step.path, status, answer, step.status, step.answer)
		}
	}
}

// TestExplainRemotePod explains by the name of a pod of another node, at both ends, and after another pod has its
// address and labels. TestPutSelectsNoPod: PUT says that a policy selects no pod of this node, until one has the
// labels.
func TestPutSelectsNoPod(t *testing.T) {
	n := servingNode(t, "")
	n.attach(t, pod(1, "other"))
	put := func(want bool) {
		t.Helper()
		if _, answer := call(n)("PUT", "/v1/policy", toWebFrom("client")); strings.Contains(answer, "selects no pod of this node") != want {
			t.Errorf("%s, want that it selects none: %v", answer, want)
		}
	}
	put(true)
	n.attach(t, pod(2, "web"))
	put(false)
}

func TestExplainRemotePod(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, toWebFrom("client"))
	remote := model.Endpoint{
		Key: RemotePrefix + "7/10.0.1.2", Kind: model.Pod, Namespace: "default", Name: "far", Labels: map[string]string{"app": "client"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.2")},
	}
	ask := call(n, web)
	for _, name := range []string{"far", "later"} {
		remote.Name = name
		n.queue.SetRemote(RemoteChange{Set: []model.Endpoint{remote}})
		if err := n.queue.set(t.Context(), update{}); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"from=default/" + name + "&to=1&port=80":          `{"from":{"address":"10.0.1.2","kind":"pod","pod":{"namespace":"default","name":"` + name + `"}}`,
			"from=1&to=pod-name:default/" + name + "&port=80": `"to":{"address":"10.0.1.2","kind":"pod","pod":{"namespace":"default","name":"` + name + `"}}`,
			"from=1&to=default/" + name + "&port=80":          `"ingress":{"allowed":true,"reason":"` + v1.ReasonOtherNode + `"}`,
			"from=default/nobody&to=1&port=80":                `"code":"not-found"`,
		} {
			if _, answer := ask("GET", "/v1/policy/explain?"+path, ""); !strings.Contains(answer, want) {
				t.Errorf("%s: %s, want %s", path, answer, want)
			}
		}
	}
}

func TestExplainOverHTTP(t *testing.T) {
	n := servingNode(t, "")
	web, client, both := pod(1, "web"), pod(2, "client"), pod(3, "other")
	both.Addresses.IPv6 = netip.MustParseAddr("fd00::3")
	for _, ep := range []endpoint.Endpoint{web, client, both} {
		n.attach(t, ep)
	}
	n.queue.collect(setEndpoint(desiredEndpoint{Endpoint: model.Endpoint{Key: HostKey, Kind: model.Host, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}))
	n.put(t, toWebFrom("client"))
	n.put(t, twoPolicies)
	ask := call(n, web, client, both)
	for _, row := range []struct {
		query  string
		status int
		answer string
	}{
		{"from=default/pod-c2&to=default/pod-c1&port=80", 200, `"protocol":"TCP","port":80,"allowed":true,"egress":{"allowed":true,"reason":"no rule matches","passed":[{"kind":"ClusterNetworkPolicy","policy":"second","direction":"egress","index":0}]},` +
			`"ingress":{"allowed":true,"reason":"rule","rule":{"kind":"NetworkPolicy","namespace":"default","policy":"web","direction":"ingress","index":0}}`},
		{"from=3&to=1&port=80", 200, `"allowed":false,"egress":{"allowed":true,`},
		{"from=3&to=1&port=80", 200, `"ingress":{"allowed":false,"reason":"default deny","rule":{"kind":"NetworkPolicy","namespace":"default","policy":"web","direction":"ingress","index":-1}}`},
		{"from=3&to=1&port=53&protocol=tcp", 200, `"policy":"first","direction":"ingress","index":0,"name":"no-dns"}`},
		{"from=192.0.2.1&to=10.0.0.1&port=81", 200, `{"from":{"address":"192.0.2.1","kind":"host"},"to":{"address":"10.0.0.1","kind":"pod","pod":{"namespace":"default","name":"pod-c1"},"endpoint":1}`},
		{"from=192.0.2.1&to=10.0.0.1&port=81", 200, `"ingress":{"allowed":true,"reason":"this node"}`},
		{"from=fd00::9&to=3&port=80", 200, `{"from":{"address":"fd00::9","kind":"world"},"to":{"address":"fd00::3","kind":"pod"`},
		{"from=3&to=1&protocol=icmp", 200, `"protocol":"ICMP","allowed":false`},
		{"from=3&to=1&port=80", 200, `"datapath":{"egress":true,"ingress":false}}`},
		{"from=192.0.2.1&to=10.0.0.1&port=81", 200, `"datapath":{"ingress":true}}`},
		{"from=3&to=3&port=80", 200, `"datapath":{"egress":true,"ingress":true}}`},
		{"from=192.0.2.7&to=192.0.2.8&port=80", 200, `"datapath":{"notAsked":"neither end is a pod of this node"}}`},
		{"from=1&to=192.0.2.1&port=80", 200, `"datapath":{"notAsked":"what reaches the node itself is decided by nftables"}}`},
		{"from=fd00::9&to=1&port=80", 400, `have no address of the same family`},
		{"from=default/none&to=1&port=80", 404, `no such endpoint`},
		{"to=1&port=80", 400, `from: endpoint reference`},
		{"from=1&to=2", 400, `port is missing: TCP takes one`},
		{"from=1&to=2&port=http", 400, `want a number`},
		{"from=1&to=2&port=80&protocol=icmp", 400, `ICMP has no ports`},
		{"from=1&to=2&port=80&protocol=tpc", 400, `protocol \"tpc\": want TCP`},
	} {
		status, answer := ask("GET", "/v1/policy/explain?"+row.query, "")
		if status != row.status || !strings.Contains(answer, row.answer) {
			t.Errorf("%s: %d %s, want %d and %s", row.query, status, answer, row.status, row.answer)
		}
	}
}

// TestExplainDatapathDiffers removes the table of a pod from the kernel.
func TestExplainDatapathDiffers(t *testing.T) {
	n := servingNode(t, "")
	web, client := pod(1, "web"), pod(2, "client")
	ask := call(n, web, client)
	const query = "/v1/policy/explain?from=2&to=1&port=80"
	if _, answer := ask("GET", query, ""); !strings.Contains(answer, `"datapath":{"notAsked":"neither end is a pod of this node"}`) {
		t.Errorf("before the pods are in the datapath: %s", answer)
	}
	n.attach(t, web)
	n.attach(t, client)
	n.put(t, toWebFrom("client"))
	n.kernel.mu.Lock()
	delete(n.kernel.tables, n.kernel.endpoints["c1:eth0"].tables[model.Ingress])
	n.kernel.mu.Unlock()
	if _, answer := ask("GET", query, ""); !strings.Contains(answer, `"datapath":{"egress":true,"ingress":false,"differs":true}`) {
		t.Errorf("without the table: %s", answer)
	}
}

// TestExplainLayer7 tells what may be asked for, and when the datapath denies it for want of the proxy.
func TestExplainLayer7(t *testing.T) {
	proxy := newFakeProxy()
	n := l7node(t, proxy, "")
	web, client := pod(1, "web"), pod(2, "client")
	ask := call(n, web, client)
	const query = "/v1/policy/explain?from=2&to=1&port=80"
	n.attach(t, web)
	n.attach(t, client)
	n.put(t, webRules("client", "/a"))
	_, answer := ask("GET", query, "")
	for _, want := range []string{`"layer7":["GET /a"]`, `"datapath":{"egress":true,"ingress":true}`} {
		if !strings.Contains(answer, want) {
			t.Errorf("explain: %s, want %s", answer, want)
		}
	}
	proxy.mu.Lock()
	proxy.broken = errProxy
	proxy.mu.Unlock()
	if _, answer := ask("GET", query, ""); !strings.Contains(answer, fmt.Sprintf(`"proxyError":%q`, errProxy.Error())) {
		t.Errorf("while the proxy does not work: %s", answer)
	}
	if _, answer := ask("GET", "/v1/policy/explain?from=1&to=2&port=80", ""); strings.Contains(answer, "proxyError") {
		t.Errorf("what does not go through the proxy: %s", answer)
	}
	n.queue.layer7.mu.Lock()
	clear(n.queue.layer7.prepared)
	n.queue.layer7.mu.Unlock()
	proxy.set(false, errProxy)
	if err := n.queue.rewrite(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, answer = ask("GET", query, "")
	for _, want := range []string{`"layer7":["GET /a"]`, `"datapath":{"egress":true,"ingress":false,"differs":true}`, `"error":"what needs layer 7 rules which the proxy does not have is denied`} {
		if !strings.Contains(answer, want) {
			t.Errorf("without the proxy: %s, want %s", answer, want)
		}
	}
	if status, answer := ask("PUT", "/v1/policy", webRules("client", "/unsupported")); status != 400 || !strings.Contains(answer, "CiliumNetworkPolicy default/web: ingress rule 0: no such path") {
		t.Errorf("put: %d %s, want that it is not supported", status, answer)
	}
}

func TestExplainWithoutDatapath(t *testing.T) {
	n := &node{queue: NewQueue(engine.Config{}, nil, nil, nil, quiet)}
	n.policies, n.step = New(Config{}, n.queue, quiet), NewStep(n.queue)
	n.queue.Start(nil)
	t.Cleanup(func() { n.stop(t) })
	web, client := pod(1, "web"), pod(2, "client")
	ask := call(n, web, client)
	const query = "/v1/policy/explain?from=2&to=1&port=80"
	if _, answer := ask("GET", query, ""); !strings.Contains(answer, `"datapath":{"notAsked":"the agent has not written its policies yet"}`) {
		t.Errorf("before everything is restored: %s", answer)
	}
	n.prune(t)
	n.attach(t, web)
	n.attach(t, client)
	if _, answer := ask("GET", query, ""); !strings.Contains(answer, `"datapath":{"notAsked":"this agent has no datapath"}`) {
		t.Errorf("without a datapath: %s", answer)
	}
}

func TestStatus(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, toWebFrom("client")+"---"+twoPolicies)
	r := newReporter(n.policies)
	var status v1.Status
	r.Report(&status)
	if p := status.Policy; p.Policies != 3 || p.Revision != 3 || p.Identities == 0 || p.Error != "" || fmt.Sprint(p.Reports) !=
		"[{[ClusterNetworkPolicy first ClusterNetworkPolicy second] equal priority 7 in tier admin: evaluated in the order of kind and name}]" {
		t.Errorf("status %+v", p)
	}
	var described v1.Endpoint
	r.Describe(pod(9, ""), &described)
	if described.Policy != nil {
		t.Errorf("an endpoint that is not known: %+v", described.Policy)
	}
	if r.Describe(web, &described); described.Policy == nil || *described.Policy != (v1.EndpointPolicy{Egress: true, Ingress: true}) {
		t.Errorf("described as %+v, want both directions restricted", described.Policy)
	}
	n.kernel.refuseWith(errKernel)
	if err := n.step.Detach(t.Context(), web, endpoint.DeleteConfig{}); err == nil {
		t.Fatal("detached")
	}
	r.Report(&status)
	if p := status.Policy; p.Error != errKernel.Error() || p.FailedSince.IsZero() {
		t.Errorf("status %+v, want the error", p)
	}
}

// TestExplainHeld: an endpoint that a start holds is no stranger, if its labels are known.
func TestExplainHeld(t *testing.T) {
	n := servingNode(t, "")
	known, unknown, client := pod(1, "web"), pod(7, ""), pod(2, "client")
	unknown.Spec.Pod, unknown.Metadata = endpoint.Pod{}, ""
	known.State, unknown.State = endpoint.Held, endpoint.Held
	for _, ep := range []endpoint.Endpoint{known, unknown} {
		if err := n.step.Occupy(ep); err != nil {
			t.Fatal(err)
		}
	}
	n.attach(t, client)
	n.put(t, toWebFrom("client"))
	n.kernel.mu.Lock()
	n.kernel.denied = map[uint16]bool{unknown.ID: true} // it was restricted
	n.kernel.mu.Unlock()
	ask := call(n, known, unknown, client)
	for query, wants := range map[string][]string{
		"from=2&to=1&port=80": {`"kind":"pod","pod":{"namespace":"default","name":"pod-c1"},"endpoint":1,"held":true}`, `"allowed":true,"egress"`},
		"from=7&to=1&port=80": {
			`{"from":{"address":"10.0.0.7","kind":"world","endpoint":7,"held":true}`, `"ingress":{"allowed":false,"reason":"default deny"`,
		},
	} {
		_, answer := ask("GET", "/v1/policy/explain?"+query, "")
		for _, want := range wants {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: %s, want %s", query, answer, want)
			}
		}
	}
}

// TestPutDryRun: what would become of policies is told, and why they would be refused; nothing is changed.
func TestPutDryRun(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	put := func(query, body string, code int, text string) {
		t.Helper()
		if got, answer := call(n)("PUT", "/v1/policy"+query, body); got != code || !strings.Contains(answer, text) {
			t.Errorf("PUT %s: %d, %s; want %d and %q", query, got, answer, code, text)
		}
	}
	put("?dryRun=true", toWebFrom("client"), http.StatusOK, `"outcome":"created"`)
	put("?dryRun=true", strings.Replace(toWebFrom("client"), "podSelector", "podSelectors", 1), http.StatusBadRequest, "podSelectors")
	n.kernel.fits = func(e *engine.Engine) error {
		if e.Selects(policyOf(t, toWebFrom("client")).ID) {
			return ErrNoRoom
		}
		return nil
	}
	put("?dryRun=true", toWebFrom("client"), http.StatusServiceUnavailable, "do not fit")
	n.kernel.fits = nil
	put("?dryRun=yes", toWebFrom("client"), http.StatusBadRequest, "want true or false")
	if names := n.names(); len(names) > 0 {
		t.Errorf("policies %q after dry runs", names)
	}
	n.put(t, toWebFrom("client"))
	put("?dryRun=true", toWebFrom("client"), http.StatusOK, `"outcome":"unchanged"`)
	put("?dryRun=true", toWebFrom("other"), http.StatusOK, `"outcome":"changed"`)
	n.wants(t, other, web, false, "after a dry run of another version")
}
