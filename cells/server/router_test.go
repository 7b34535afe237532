package server

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "porin.dev/porin/api/v1"
)

type reporterFunc func(*v1.Status)

func (f reporterFunc) Report(s *v1.Status) { f(s) }

func TestStatus(t *testing.T) {
	r := newRig(t, Parts{Reporters: []StatusReporter{
		reporterFunc(func(s *v1.Status) { s.Endpoints["ready"] = 3 }),
		reporterFunc(func(s *v1.Status) { s.Datapath.Digest = "abc" }),
	}})
	_, _, body := r.do(t, http.MethodGet, "/v1/status", nil)

	var got v1.Status
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v0" || got.Node != "here" || got.PID != os.Getpid() || !got.Ready || got.Started.IsZero() ||
		got.Endpoints["ready"] != 3 || got.Datapath.Digest != "abc" || got.Datapath.Programs == nil {
		t.Errorf("status %s", body)
	}
}

func TestDocument(t *testing.T) {
	status, header, body := newRig(t, Parts{}).do(t, http.MethodGet, "/v1/openapi.json", nil)
	if status != http.StatusOK || header.Get("Content-Type") != "application/json" || !json.Valid([]byte(body)) {
		t.Errorf("answer %d %v %.80s", status, header, body)
	}
}

func TestUnknownCalls(t *testing.T) {
	r := newRig(t, Parts{})
	if p := r.problem(t, http.MethodGet, "/v2/nothing", nil); p.Status != 404 || p.Code != v1.CodeNotFound {
		t.Errorf("unknown path: %+v", p)
	}
	if p := r.problem(t, http.MethodPut, "/v1/status", nil); p.Status != 405 || p.Code != v1.CodeInvalid {
		t.Errorf("unknown method: %+v", p)
	}
	if _, header, _ := r.do(t, http.MethodPut, "/v1/status", nil); header.Get("Allow") != "GET" {
		t.Errorf("Allow: %q, want GET", header.Get("Allow"))
	}
}

func TestMetricsOfUnknownRoute(t *testing.T) {
	r := newRig(t, handle(http.MethodGet, "/v1/endpoint/{id}", func(http.ResponseWriter, *http.Request) {}))
	r.do(t, http.MethodGet, "/v1/endpoint/1", nil)
	r.do(t, http.MethodGet, "/v1/endpoint/2", nil)
	r.do(t, http.MethodGet, "/made-up", nil)
	r.do(t, "MADEUP", "/v1/endpoint/1", nil)
	r.stop(t) // a request is measured after its answer

	if n := testutil.CollectAndCount(r.requests); n != 3 {
		t.Errorf("%d series, want one for the route, one for 404 and one for 405", n)
	}
	problems, err := testutil.CollectAndLint(r.requests)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestPanic(t *testing.T) {
	r := newRig(t, handle(http.MethodGet, "/boom", func(http.ResponseWriter, *http.Request) { panic("kaput") }))
	p := r.problem(t, http.MethodGet, "/boom", nil)
	if p.Status != 500 || p.Code != v1.CodeInternal || strings.Contains(p.Detail, "kaput") {
		t.Errorf("problem %+v", p)
	}
	r.stop(t)
	for _, want := range []string{"kaput", "router_test.go", `level=WARN msg="request answered"`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, r.log)
		}
	}
}

func TestPanicAfterAnswerBegan(t *testing.T) {
	r := newRig(t, handle(http.MethodGet, "/boom", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"half":`))
		_ = http.NewResponseController(w).Flush()
		panic("kaput")
	}))
	answer, err := r.http.Get("http://porin/boom")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := answer.Body.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := answer.Body.Read(make([]byte, 8)); err == nil || err.Error() == "EOF" {
		t.Errorf("half an answer ended with %v", err)
	}
}
