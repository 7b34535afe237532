package endpointmanager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

// call is a client of the routes: it returns the status, and the body or the problem's code and detail.
func call(t *testing.T, m *manager) func(method, path, body string) (int, string) {
	router := chi.NewRouter()
	routes{Manager: m, Lookup: m.table}.Mount(router)
	return func(method, path, body string) (int, string) {
		t.Helper()
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest(method, path, strings.NewReader(body)))
		return recorder.Code, recorder.Body.String()
	}
}

const request = `{"network":"porin","pod":{"namespace":"default","name":"web"},"host":{"name":"por1","index":7,"mac":"02:00:00:00:00:01"},"container":{"name":"eth0","mac":"02:00:00:00:00:02"}}`

func TestALifeOverHTTP(t *testing.T) {
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

func TestBadCallsAreAnsweredWithTheRightCode(t *testing.T) {
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
		{"PUT", "/v1/endpoint/c1:eth0", strings.Replace(request, "02:00:00:00:00:01", "01", 1), 400, v1.CodeInvalid},
		{"PUT", "/v1/endpoint/c1:eth0", strings.Replace(request, "por1", "a/../b", 1), 400, v1.CodeInvalid},
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
	attachment := Attachment{ContainerID: "c1", IfName: "eth0"}
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
		// What is taken can be written to the ledger and read again.
		want := record{Phase: committed, Endpoint: Endpoint{ID: 1, Spec: spec}}
		value, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRecord(want.key(), value); err != nil || got != want {
			t.Fatalf("read %+v, %v, want %+v", got, err, want)
		}
	})
}
