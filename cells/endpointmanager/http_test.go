package endpointmanager

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/httpx"
)

// call is a client of the routes: it returns the status, and the body or the problem's code and detail.
func call(t *testing.T, m *manager) func(method, path, body string) (int, string) {
	router := chi.NewRouter()
	kept := newTraces()
	m.observers = append(m.observers, kept)
	routes{Manager: m, Lookup: m.table, Traces: kept}.Mount(router)
	return func(method, path, body string) (int, string) {
		t.Helper()
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest(method, path, strings.NewReader(body)))
		return recorder.Code, recorder.Body.String()
	}
}

const request = `{"network":"porin","pod":{"namespace":"default","name":"web"}}`

func TestCreateAndDeleteOverHTTP(t *testing.T) {
	ask := call(t, started(t, t.TempDir(), &probe{}))
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/v1/endpoint", "", 200, `[]`},
		{"PUT", "/v1/endpoint/c1:eth0", request, 200, `"id":1,"containerID":"c1","ifname":"eth0","state":"ready"`},
		{"PUT", "/v1/endpoint/c1:eth0", request, 200, `"id":1,`},
		{"PUT", "/v1/endpoint/c1:net1", request, 200, `"id":2,`},
		{"GET", "/v1/endpoint/1", "", 200, `"ifname":"eth0"`},
		{"GET", "/v1/endpoint/cni-attachment-id:c1:net1", "", 200, `"id":2,`},
		{"GET", "/v1/endpoint/container-id:c1", "", 409, `"code":"conflict"`},
		{"GET", "/v1/endpoint/pod-name:default%2Fweb", "", 409, `"code":"conflict"`},
		{"GET", "/v1/endpoint/3", "", 404, `"code":"not-found"`},
		{"GET", "/v1/endpoint?network=other", "", 200, `[]`},
		{"DELETE", "/v1/endpoint/2", "", 200, `{"deleted":1,"errors":0}`},
		{"DELETE", "/v1/endpoint/2", "", 404, `"code":"not-found"`},
		{"DELETE", "/v1/endpoint/cni-attachment-id:c1:net1", "", 200, `{"deleted":0,"errors":0}`},
		{"DELETE", "/v1/endpoint", `{"containerID":"c1"}`, 200, `{"deleted":1,"errors":0}`},
		{"DELETE", "/v1/endpoint", `{"containerID":"c1"}`, 200, `{"deleted":0,"errors":0}`},
	} {
		status, answer := ask(step.method, step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", step.method, step.path, status, answer, step.status, step.answer)
		}
	}
}

func TestLabelsOverHTTP(t *testing.T) {
	ask := call(t, started(t, t.TempDir(), &probe{}))
	labelled := func(more string) string { return strings.Replace(request, "{", "{"+more+",", 1) }
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"PUT", "/v1/endpoint/c1:eth0", labelled(`"labels":{"app":"web"},"namespaceLabels":{"kubernetes.io/metadata.name":"default"},"namedPorts":[{"name":"http","port":80}]`), 200,
			`"labels":{"app":"web"},"namespaceLabels":{"kubernetes.io/metadata.name":"default"},"namedPorts":[{"name":"http","protocol":"TCP","port":80}]`},
		{"PUT", "/v1/endpoint/c1:eth0", request, 200, `"labels":{"app":"web"}`},
		{"PATCH", "/v1/endpoint/1", `{"labels":{"app":"db"}}`, 200, `"labels":{"app":"db"},"namespaceLabels":{"kubernetes.io/metadata.name":"default"}`},
		{"PATCH", "/v1/endpoint/pod-name:default%2Fweb", `{"namespaceLabels":{}}`, 200, `"labels":{"app":"db"},"namedPorts"`},
		{"GET", "/v1/endpoint/1", "", 200, `"labels":{"app":"db"},"namedPorts"`},
		{"PATCH", "/v1/endpoint/1", `{"labels":{"app":"a b"}}`, 400, `labels \"app=a b\": want key=value`},
		{"PATCH", "/v1/endpoint/1", `{"namespaceLabels":{"kubernetes.io/metadata.name":"other"}}`, 400, `is \"other\", and the pod's namespace is \"default\"`},
		{"PATCH", "/v1/endpoint/1", `{"namedPorts":[{"name":"HTTP","port":80}]}`, 400, `want a name of lower case letters`},
		{"PATCH", "/v1/endpoint/1", `{"namedPorts":[{"name":"http","port":0}]}`, 400, `want a port`},
		{"PATCH", "/v1/endpoint/1", `{"namedPorts":[{"name":"http","port":80,"protocol":"ICMP"}]}`, 400, `want TCP, UDP or SCTP`},
		{"PATCH", "/v1/endpoint/1", `{"label":{}}`, 400, `unknown field`},
		{"PATCH", "/v1/endpoint/9", `{"labels":{}}`, 404, `"code":"not-found"`},
		{"PUT", "/v1/endpoint/c2:eth0", labelled(`"labels":{"-":""}`), 400, `labels`},
	} {
		status, answer := ask(step.method, step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", step.method, step.path, status, answer, step.status, step.answer)
		}
	}
}

// TestLateCallOverHTTP has each caller say when it began.
func TestLateCallOverHTTP(t *testing.T) {
	ask := call(t, started(t, t.TempDir(), &probe{}))
	began := func(ns string) string { return strings.Replace(request, "{", `{"began":`+ns+",", 1) }
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"PUT", "/v1/endpoint/c1:eth0", began("2000"), 200, `"id":1,`},
		{"DELETE", "/v1/endpoint/cni-attachment-id:c1:eth0?began=1000", "", 200, `{"deleted":0,"skipped":1,"errors":0}`},
		{"DELETE", "/v1/endpoint", `{"containerID":"c1","began":1500}`, 200, `{"deleted":0,"skipped":1,"errors":0}`},
		{"DELETE", "/v1/endpoint/cni-attachment-id:c1:eth0?began=3000", "", 200, `{"deleted":1,"errors":0}`},
		{"PUT", "/v1/endpoint/c1:eth0", began("2500"), 503, `it was deleted meanwhile`},
		{"DELETE", "/v1/endpoint/cni-attachment-id:c1:eth0?began=0", "", 400, `began: want nanoseconds`},
		{"DELETE", "/v1/endpoint/cni-attachment-id:c1:eth0?began=soon", "", 400, `began: want nanoseconds`},
		{"PUT", "/v1/endpoint/c2:eth0", request, 200, `"id":`},
		{"POST", "/v1/gc", `{"network":"porin","valid":["c2:eth0"]}`, 200, `{"stale":[],"deleted":0,"errors":0}`},
		{"POST", "/v1/gc", `{"network":"porin","valid":[],"dryRun":true}`, 200, `{"stale":["c2:eth0"],"deleted":0,"errors":0}`},
		{"POST", "/v1/gc", `{"network":"porin","valid":[]}`, 200, `"withheld":"1 of the 1 endpoints of network`},
		{"POST", "/v1/gc", `{"network":"porin","valid":[]}`, 200, `{"stale":["c2:eth0"],"deleted":1,"errors":0}`},
		{"POST", "/v1/gc", `{"valid":[]}`, 400, `network: want the name`},
		{"POST", "/v1/gc", `{"network":"porin","valid":["c2"]}`, 400, `want containerID:ifname`},
		{"POST", "/v1/gc", `{"network":"porin","valid":[],"began":-1}`, 400, `began: want`},
	} {
		status, answer := ask(step.method, step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", step.method, step.path, status, answer, step.status, step.answer)
		}
	}
}

func TestTraceLookup(t *testing.T) {
	p := &probe{}
	ask := call(t, started(t, t.TempDir(), p))
	for _, a := range []string{"c1:eth0", "c2:eth0"} {
		ask("PUT", "/v1/endpoint/"+a, request)
	}
	ask("DELETE", "/v1/endpoint/cni-attachment-id:c1:eth0", "")
	p.attach = func(context.Context) error { return errors.New("the kernel said no") }
	if _, answer := ask("PUT", "/v1/endpoint/c3:eth0", request); !strings.Contains(answer, "the kernel said no (after ") {
		t.Errorf("the error of an ADD does not say what took the time: %s", answer)
	}
	for ref, want := range map[string][]string{
		"": {"add c3:eth0", "del c1:eth0", "add c2:eth0", "add c1:eth0"}, "c1": {"del c1:eth0", "add c1:eth0"},
		"default/web": {"add c3:eth0", "del c1:eth0", "add c2:eth0", "add c1:eth0"}, "cni-attachment-id:c2:eth0": {"add c2:eth0"},
		"2": {"add c2:eth0"}, "c9": {}, "default/db": {},
	} {
		status, answer := ask("GET", "/v1/trace?ref="+url.QueryEscape(ref), "")
		var traces []v1.Trace
		if err := json.Unmarshal([]byte(answer), &traces); err != nil || status != http.StatusOK {
			t.Fatalf("ref %q: %d %v %s", ref, status, err, answer)
		}
		got := []string{}
		for _, trace := range traces {
			got = append(got, trace.Operation+" "+trace.Endpoint)
			if len(trace.Phases) < 4 || trace.Duration <= 0 {
				t.Errorf("trace %+v: want its phases and how long it took", trace)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("ref %q: %q, want %q", ref, got, want)
		}
	}
	if status, _ := ask("GET", "/v1/trace?ref="+url.QueryEscape("a b"), ""); status != http.StatusBadRequest {
		t.Errorf("a bad reference: status %d", status)
	}
}

func TestTraceLimit(t *testing.T) {
	kept := newTraces()
	for i := range 2*keptTraces + 7 {
		kept.Observe(endpoint.Trace{Duration: time.Duration(i)})
	}
	list := kept.latest(func(endpoint.Endpoint) bool { return true })
	if len(list) != keptTraces || list[0].Duration != 2*keptTraces+6 || list[keptTraces-1].Duration != keptTraces+7 {
		t.Errorf("%d traces, from %d to %d", len(list), list[0].Duration, list[len(list)-1].Duration)
	}
}

// deaf is a caller that has left when the answer comes.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestCreateAnswerNotTaken(t *testing.T) {
	p := &probe{}
	m := started(t, t.TempDir(), p)
	router := chi.NewRouter()
	routes{Manager: m, Lookup: m.table, Traces: newTraces()}.Mount(router)
	router.ServeHTTP(deaf{httptest.NewRecorder()}, httptest.NewRequest("PUT", "/v1/endpoint/c1:eth0", strings.NewReader(request)))
	if len(m.table.List()) != 0 || p.attached != 0 {
		t.Errorf("left %v, attached %d", m.table.List(), p.attached)
	}
}

// The first call has been answered with the endpoint, and whoever made that relies on it.
func TestCreateRepeatedAnswerNotTaken(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	router := chi.NewRouter()
	routes{Manager: m, Lookup: m.table, Traces: newTraces()}.Mount(router)
	put := func(w http.ResponseWriter) {
		router.ServeHTTP(w, httptest.NewRequest("PUT", "/v1/endpoint/c1:eth0", strings.NewReader(request)))
	}
	taken := httptest.NewRecorder()
	put(taken)
	put(deaf{httptest.NewRecorder()})
	if list := m.table.List(); taken.Code != http.StatusOK || len(list) != 1 || list[0].State != endpoint.Ready {
		t.Errorf("first answer %d, left %v", taken.Code, list)
	}
}

func TestBadCalls(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	ask := call(t, m)
	long := strings.Repeat("a", v1.MaxContainerID+1)
	for _, bad := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"PUT", "/v1/endpoint/c1:eth0", "", 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", "{", 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", request + request, 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", strings.Replace(request, "network", "netwrok", 1), 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", strings.Replace(request, `"network"`, `"mtu":68,"network"`, 1), 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", strings.Replace(request, `"network"`, `"began":-1,"network"`, 1), 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", strings.Repeat(" ", httpx.MaxBody) + request, 413, v1.CodeTooLarge},
		{"PUT", "/v1/endpoint/c1", request, 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/" + long + ":eth0", request, 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/..%2F..%2Fetc:eth0", request, 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:..%2Feth0", request, 400, v1.CodeInvalid},
		{"GET", "/v1/endpoint/magic:1", "", 400, v1.CodeInvalid},
		{"DELETE", "/v1/endpoint", `{}`, 400, v1.CodeInvalid},
		{"DELETE", "/v1/endpoint", `{"containerID":"../c1"}`, 400, v1.CodeInvalid},
		{"DELETE", "/v1/endpoint/0", "", 400, v1.CodeInvalid},
	} {
		status, answer := ask(bad.method, bad.path, bad.body)
		var problem v1.Problem
		if err := json.Unmarshal([]byte(answer), &problem); err != nil || status != bad.status || problem.Code != bad.code || problem.Detail == "" {
			t.Errorf("%s %.60s %.60q: %d %.200s, want %d and %s", bad.method, bad.path, bad.body, status, answer, bad.status, bad.code)
		}
	}
	if left := m.table.List(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func FuzzCreateBody(f *testing.F) {
	f.Add(request)
	f.Add(`{"addresses":{"ipv4":"fe80::1%eth0","ipv6":"::ffff:10.0.0.1"},"externalIPAM":true}`)
	attachment := endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest(http.MethodPut, "/v1/endpoint/c1:eth0", strings.NewReader(text))
		body, err := httpx.Decode[v1.EndpointRequest](httptest.NewRecorder(), r)
		if err != nil {
			return
		}
		spec, err := specFromV1(attachment, body)
		if err != nil || spec.Validate() != nil {
			return
		}
		// An accepted request can be written to the ledger and read again.
		want := ledger.Record{Phase: ledger.Committed, Endpoint: endpoint.Endpoint{ID: 1, Spec: spec}}
		value, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got ledger.Record
		if err := json.Unmarshal(value, &got); err != nil || got != want {
			t.Fatalf("read %+v, %v, want %+v", got, err, want)
		}
	})
}
