package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

var update = flag.Bool("update", false, "rewrite the golden files")

// linked is a step that gives an endpoint a link without a kernel.
type linked struct{ *endpointmanagertest.Step }

func (l linked) Attach(ctx context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	ep, err := l.Step.Attach(ctx, ep, namespace)
	ep = endpointmanagertest.WithLink(ep, 7)
	ep.MTU = 1500
	return ep, err
}

type noDifference struct{}

func (noDifference) Inspect(context.Context, endpoint.Endpoint, *endpoint.Namespace) (string, error) {
	return "", nil
}

type healthy struct{}

func (healthy) Examine(context.Context, doctor.Scope) (v1.Doctor, error) { return v1.Doctor{}, nil }

type brokenReason string

func (r brokenReason) Broken() string { return string(r) }

// testAgent is a handler whose manager has steps without a kernel.
type testAgent struct {
	handler
	t       *testing.T
	manager endpointmanager.Service
	caller  server.Caller
}

func newTestAgent(t *testing.T) *testAgent {
	t.Helper()
	table := endpointmanager.NewTable()
	config := endpointmanager.DefaultConfig()
	config.StateDir = t.TempDir()
	manager := endpointmanager.New(endpointmanager.Params{
		Config: config, Log: slog.New(slog.DiscardHandler), Table: table,
		Steps: endpoint.Steps{endpointmanagertest.NewStep("ipam"), linked{endpointmanagertest.NewStep("link")}},
	})
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Stop(context.Background()) })
	own, err := netns.OwnCookie()
	if err != nil {
		t.Fatal(err)
	}
	return &testAgent{t: t, manager: manager, caller: server.Caller{NetNSCookie: own}, handler: handler{
		Log: slog.New(slog.DiscardHandler), Manager: manager, Lookup: table, Inspector: noDifference{},
		Plugins: delegate.New(delegate.Config{BinDirs: []string{t.TempDir()}}), Examiner: healthy{}, Capacity: brokenReason(""),
		Calls: &calls{},
	}}
}

// post sends a body as the plugin does, with a descriptor unless that is nil.
func (a *testAgent) post(body []byte, descriptor *os.File) (status int, answer string) {
	a.t.Helper()
	router := chi.NewRouter()
	a.Mount(router)
	ctx := a.t.Context()
	if descriptor != nil {
		ctx = server.WithDescriptor(ctx, descriptor)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/cni", bytes.NewReader(body)).WithContext(server.WithCaller(ctx, a.caller))
	w := httptest.NewRecorder()
	router.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// call sends a call for the container c1 with more members of the configuration, and more of the environment.
func (a *testAgent) call(command string, descriptor *os.File, config string, environment ...string) (status int, answer string) {
	a.t.Helper()
	call := v1.CNICall{
		Version:     v1.CNICallVersion,
		Environment: map[string]string{"CNI_COMMAND": command, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/run/netns/c1"},
		Config:      json.RawMessage(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni"` + config + `}`),
	}
	for _, pair := range environment {
		key, value, _ := strings.Cut(pair, "=")
		call.Environment[key] = value
	}
	body, err := json.Marshal(call)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.post(body, descriptor)
}

// namespace is a descriptor of a container's network namespace, which the handler closes.
func namespace(t *testing.T, of *testutil.Namespace) *os.File {
	t.Helper()
	file, err := os.Open(of.Path())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func (a *testAgent) wants(what string, status int, answer string, wantStatus int, words string) {
	a.t.Helper()
	if status != wantStatus || !strings.Contains(answer, words) {
		a.t.Errorf("%s: %d %s, want %d and %q", what, status, answer, wantStatus, words)
	}
}

func TestCallerNotRoot(t *testing.T) {
	a := newTestAgent(t)
	a.caller.UID = 1000
	status, answer := a.call("STATUS", nil, "")
	a.wants("user 1000", status, answer, http.StatusForbidden, `"code":"forbidden"`)
}

func TestCallVersion(t *testing.T) {
	a := newTestAgent(t)
	status, answer := a.post([]byte(`{"version":2,"environment":{"CNI_COMMAND":"STATUS"},"config":{"cniVersion":"1.1.0","name":"porin"}}`), nil)
	a.wants("a newer version", status, answer, http.StatusNotFound, `"code":"not-found"`)
	status, answer = a.post([]byte(`{"version":1,"color":"blue","environment":{"CNI_COMMAND":"STATUS","CNI_NEW":"x"},"config":{"cniVersion":"1.1.0","name":"porin"},"began":7}`), nil)
	a.wants("an unknown member", status, answer, http.StatusOK, "")
}

// TestRecordedCalls posts what plugins of each version have sent. Files are added, never changed: a plugin may be one
// version older than the agent.
func TestRecordedCalls(t *testing.T) {
	testutil.Root(t)
	container := testutil.NetNS(t)
	files, err := filepath.Glob("testdata/calls/v*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	a := newTestAgent(t)
	for _, file := range files { // in the order of their names
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		status, answer := a.post(body, namespace(t, container))
		a.wants(file, status, answer, http.StatusOK, "")
	}
}

func TestAddResultOfEachVersion(t *testing.T) {
	testutil.Root(t)
	container := testutil.NetNS(t)
	for _, version := range versions.SupportedVersions() {
		a := newTestAgent(t)
		status, answer := a.call("ADD", namespace(t, container), `,"dns":{"nameservers":["10.0.0.53"]},"cniVersion":"`+version+`"`)
		if status != http.StatusOK {
			t.Errorf("version %s: %d %s", version, status, answer)
			continue
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(answer), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "result-"+version+".json")
		if *update {
			if err := os.WriteFile(golden, append(indented.Bytes(), '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != indented.String()+"\n" {
			t.Errorf("%s: %v; the result is\n%s", golden, err, &indented)
		}
	}
}

func TestAddRefusals(t *testing.T) {
	testutil.Root(t)
	container := testutil.NetNS(t)
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	a := newTestAgent(t)
	for name, c := range map[string]struct {
		descriptor *os.File
		config     string
		args       string
		words      string
	}{
		"no descriptor":         {nil, "", "", `"code":11,"msg":"ADD of c1:eth0: no file descriptor came with the request"`},
		"no namespace":          {plain, "", "", `"code":8,"msg":"CNI_NETNS \"/run/netns/c1\": it is not a network namespace"`},
		"the agent's namespace": {own, "", "", `"code":8,"msg":"CNI_NETNS \"/run/netns/c1\": it is the network namespace of the agent itself`},
		"chained":               {namespace(t, container), `,"prevResult":{"cniVersion":"1.1.0"}`, "", `"code":7,"msg":"porin-cni is chained`},
		"a small rate":          {namespace(t, container), `,"runtimeConfig":{"bandwidth":{"ingressRate":1}}`, "", `"code":7,"msg":"bandwidth: ingressRate 1: want 1000`},
		"a negative rate":       {namespace(t, container), `,"runtimeConfig":{"bandwidth":{"egressRate":-1}}`, "", `"code":7,"msg":"network configuration: runtimeConfig.bandwidth.egressRate: number -1, want uint64"`},
		"bandwidth of subnets":  {namespace(t, container), `,"runtimeConfig":{"bandwidth":{"unshapedSubnets":["10.0.0.0/8"]}}`, "", `"code":7,"msg":"bandwidth for some subnets`},
		"two of one family":     {namespace(t, container), `,"runtimeConfig":{"ips":["10.0.0.7"]}`, "IP=10.0.0.8", `"code":7,"msg":"the addresses 10.0.0.7 and 10.0.0.8`},
		"malformed arguments":   {namespace(t, container), "", "IP", `"code":4,"msg":"CNI_ARGS: `},
		"a small MTU":           {namespace(t, container), `,"mtu":68`, "", `"code":7,"msg":"create endpoint: mtu 68`},
		"an MTU that is none":   {namespace(t, container), `,"mtu":"big"`, "", `"code":7,"msg":"network configuration: `},
		"a MAC in CNI_ARGS":     {namespace(t, container), "", "MAC=02:00:00:00:00:01", `"code":7,"msg":"the MAC of an interface`},
		"a MAC of the runtime":  {namespace(t, container), `,"runtimeConfig":{"mac":"02:00:00:00:00:01"}`, "", `"code":7,"msg":"the MAC of an interface`},
		"a MAC of the network":  {namespace(t, container), `,"args":{"cni":{"mac":"02:00:00:00:00:01"}}`, "", `"code":7,"msg":"the MAC of an interface`},
		"a pool and a plugin":   {namespace(t, container), `,"pool":"blue","ipam":{"type":"host-local"}`, "", `"code":7,"msg":"network configuration: pool`},
	} {
		status, answer := a.call("ADD", c.descriptor, c.config, "CNI_ARGS="+c.args)
		a.wants(name, status, answer, v1.CNIErrorStatus, c.words)
		if !strings.HasPrefix(answer, `{"cniVersion":"1.1.0"`) {
			t.Errorf("%s: the error has no cniVersion: %s", name, answer)
		}
	}
	a.caller.NetNSCookie++
	status, answer := a.call("ADD", namespace(t, container), "")
	a.wants("another network namespace", status, answer, v1.CNIErrorStatus, `"code":11,"msg":"porin-agent runs in another network namespace`)
}

func TestBadCalls(t *testing.T) {
	a := newTestAgent(t)
	for name, c := range map[string]struct{ command, config, environment, words string }{
		"a path in the ID":     {"DEL", "", "CNI_CONTAINERID=../../etc", `"code":4`},
		"a path in the name":   {"DEL", "", "CNI_IFNAME=../eth0", `"code":4`},
		"an unknown command":   {"EAT", "", "", `"code":4,"msg":"CNI_COMMAND=\"EAT\" is unknown"`},
		"an unknown version":   {"DEL", `,"cniVersion":"9.9.9"`, "", `"code":1`},
		"GC before its time":   {"GC", `,"cniVersion":"1.0.0"`, "", `"code":1,"msg":"GC is not part of CNI 1.0.0"`},
		"no name":              {"DEL", `,"name":""`, "", `"code":7,"msg":"network configuration: name`},
		"GC without a list":    {"GC", "", "", `"code":7,"msg":"GC without cni.dev/valid-attachments"`},
		"CHECK without result": {"CHECK", "", "", `"code":7,"msg":"CHECK without prevResult"`},
	} {
		status, answer := a.call(c.command, nil, c.config, c.environment)
		a.wants(name, status, answer, v1.CNIErrorStatus, c.words)
	}
	status, answer := a.post([]byte(`{`), nil)
	a.wants("no JSON", status, answer, http.StatusBadRequest, `"code":"invalid"`)
}

func TestDeleteWhileStopping(t *testing.T) {
	a := newTestAgent(t)
	status, answer := a.call("DEL", nil, "")
	a.wants("DEL of nobody", status, answer, http.StatusOK, "")
	if err := a.manager.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, answer = a.call("DEL", nil, "")
	a.wants("DEL", status, answer, http.StatusServiceUnavailable, `"code":"unavailable"`) // which the plugin does without the agent
}

func TestDeleteIgnoresBadConfig(t *testing.T) {
	a := newTestAgent(t)
	status, answer := a.call("DEL", nil, `,"mtu":"big","runtimeConfig":7,"args":[],"dns":"none","prevResult":{"cniVersion":"0"}`)
	a.wants("DEL", status, answer, http.StatusOK, "")
	status, answer = a.call("DEL", nil, `,"ipam":[7]`)
	a.wants("DEL with something else as ipam", status, answer, http.StatusOK, "")
}

func TestStatus(t *testing.T) {
	a := newTestAgent(t)
	status, answer := a.call("STATUS", nil, "")
	a.wants("a healthy agent", status, answer, http.StatusOK, "")
	a.Capacity = brokenReason("ledger: no space left on device")
	status, answer = a.call("STATUS", nil, "")
	a.wants("a full disk", status, answer, v1.CNIErrorStatus, `"code":50,"msg":"no container can be attached: ledger: no space left on device"`)
}

func FuzzCall(f *testing.F) {
	f.Add([]byte(`{"version":1,"environment":{"CNI_COMMAND":"DEL","CNI_CONTAINERID":"c1","CNI_IFNAME":"eth0"},"config":{"cniVersion":"1.1.0","name":"porin"}}`))
	f.Add([]byte(`{"version":1,"environment":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"c1","CNI_IFNAME":"eth0","CNI_ARGS":"IP=1.2.3.4;;="},"config":{"cniVersion":"1.1.0","name":"porin","runtimeConfig":{"ips":["::1"]}}}`))
	f.Add([]byte(`{"version":1,"environment":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"c1","CNI_IFNAME":"eth0"},"config":{"cniVersion":"1.1.0","name":"porin","runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"porin.dev/pool":"blue","porin.dev/reservation":"T0K3N"}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var decoded v1.CNICall
		if json.Unmarshal(body, &decoded) != nil {
			return
		}
		c, err := parse(decoded)
		if err != nil {
			if printed := toCNIError(err); printed.Code == 0 || printed.Msg == "" || strings.ContainsAny(printed.Msg, "\r\n") {
				t.Errorf("error %+v", printed)
			}
			return
		}
		if spec, err := c.spec(); err == nil && (spec.Attachment != c.attachment || spec.Reservation != "" && v1.CheckToken(spec.Reservation) != nil) {
			t.Errorf("spec of %s and reservation %q for %s", spec.Attachment, spec.Reservation, c.attachment)
		}
	})
}
