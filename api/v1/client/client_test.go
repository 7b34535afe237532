package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent serves handler on a Unix socket, and returns a client of it.
func agent(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	c := client.New(socket)
	t.Cleanup(c.Close)
	return c
}

func TestCalls(t *testing.T) {
	var got string
	c := agent(t, func(w http.ResponseWriter, r *http.Request) {
		var body any
		_ = json.NewDecoder(r.Body).Decode(&body)
		got = fmt.Sprint(r.Method, " ", r.RequestURI, " ", body)
		isList := r.Method == "GET" && (r.URL.Path == "/v1/endpoint" || r.URL.Path == "/v1/trace" || r.URL.Path == "/v1/node" || r.URL.Path == "/v1/peer" || r.URL.Path == "/v1/pool" || r.URL.Path == "/v1/policy")
		isList = isList || r.Method == "PUT" && r.URL.Path == "/v1/policy"
		_, _ = w.Write([]byte(map[bool]string{true: "[]", false: "{}"}[isList]))
	})
	ctx := t.Context()
	tests := []struct {
		want string
		call func() error
	}{
		{"GET /v1/status <nil>", ignore(func() (v1.Status, error) { return c.Status(ctx) })},
		{"GET /v1/ipam <nil>", ignore(func() (v1.IPAM, error) { return c.IPAM(ctx) })},
		{"GET /v1/endpoint <nil>", ignore(func() ([]v1.Endpoint, error) { return c.Endpoints(ctx, "") })},
		{"GET /v1/endpoint?network=a%26b <nil>", ignore(func() ([]v1.Endpoint, error) { return c.Endpoints(ctx, "a&b") })},
		{"GET /v1/endpoint/7 <nil>", ignore(func() (v1.Endpoint, error) { return c.Endpoint(ctx, "7") })},
		{"GET /v1/endpoint/pod-name:default%2Fweb <nil>", ignore(func() (v1.Endpoint, error) { return c.Endpoint(ctx, "pod-name:default/web") })},
		{"GET /v1/endpoint/..%2F..%2Fstatus%3Fa <nil>", ignore(func() (v1.Endpoint, error) { return c.Endpoint(ctx, "../../status?a") })},
		{"PUT /v1/endpoint/c1:eth0 map[network:porin]", ignore(func() (v1.Endpoint, error) {
			return c.CreateEndpoint(ctx, "c1", "eth0", nil, v1.EndpointRequest{Network: "porin"})
		})},
		{"PATCH /v1/endpoint/7 map[labels:map[] namedPorts:[]]", ignore(func() (v1.Endpoint, error) {
			return c.UpdateEndpoint(ctx, "7", v1.EndpointPatch{Labels: map[string]string{}, NamedPorts: []v1.NamedPort{}})
		})},
		{"GET /v1/policy <nil>", ignore(func() ([]v1.Policy, error) { return c.Policies(ctx) })},
		{"POST /v1/policy/diff?delete=NetworkPolicy%2Fdefault%2Fweb map[kind:List]", ignore(func() (v1.PolicyDiff, error) {
			return c.DiffPolicies(ctx, []byte(`{"kind": "List"}`), []string{"NetworkPolicy/default/web"})
		})},
		{"PUT /v1/policy map[kind:List]", ignore(func() ([]v1.Policy, error) { return c.PutPolicies(ctx, []byte(`{"kind": "List"}`)) })},
		{"PUT /v1/policy?dryRun=true map[kind:List]", ignore(func() ([]v1.Policy, error) { return c.CheckPolicies(ctx, []byte(`{"kind": "List"}`)) })},
		{"GET /v1/policy/NetworkPolicy/a%2Fb/web <nil>", ignore(func() (v1.Policy, error) { return c.Policy(ctx, "NetworkPolicy", "a/b", "web") })},
		{"DELETE /v1/policy/ClusterNetworkPolicy/all <nil>", func() error { return c.DeletePolicy(ctx, "ClusterNetworkPolicy", "", "all") }},
		{"GET /v1/policy/explain?from=default%2Fweb&port=80&to=fd00%3A%3A7 <nil>", ignore(func() (v1.PolicyExplanation, error) {
			return c.ExplainPolicy(ctx, "default/web", "fd00::7", "", 80)
		})},
		{"DELETE /v1/endpoint/cni-attachment-id:c1:eth0 <nil>", ignore(func() (v1.DeleteResult, error) {
			return c.DeleteEndpoint(ctx, "cni-attachment-id:c1:eth0")
		})},
		{"DELETE /v1/endpoint/7?force=true <nil>", ignore(func() (v1.DeleteResult, error) { return c.ForceDeleteEndpoint(ctx, "7") })},
		{"DELETE /v1/endpoint map[containerID:c1]", ignore(func() (v1.DeleteResult, error) {
			return c.DeleteContainer(ctx, v1.DeleteRequest{ContainerID: "c1"})
		})},
		{"GET /v1/doctor <nil>", ignore(func() (v1.Doctor, error) { return c.Doctor(ctx, "") })},
		{"GET /v1/doctor?endpoint=c1%3Aeth0 <nil>", ignore(func() (v1.Doctor, error) { return c.Doctor(ctx, "c1:eth0") })},
		{"GET /v1/doctor?about=addresses <nil>", ignore(func() (v1.Doctor, error) { return c.DoctorAbout(ctx, "addresses") })},
		{"POST /v1/doctor <nil>", ignore(func() (v1.Doctor, error) { return c.Repair(ctx, "") })},
		{"POST /v1/doctor?about=addresses <nil>", ignore(func() (v1.Doctor, error) { return c.Repair(ctx, "addresses") })},
		{"POST /v1/ipam map[owner:move pool:blue]", ignore(func() (v1.Reservation, error) {
			return c.Reserve(ctx, v1.ReservationRequest{Owner: "move", Pool: "blue"})
		})},
		{"DELETE /v1/ipam/fd00::7?token=a%26b <nil>", ignore(func() (v1.Reservation, error) {
			return c.Release(ctx, netip.MustParseAddr("fd00::7"), "a&b")
		})},
		{"GET /v1/pool?use=false <nil>", ignore(func() ([]v1.PoolSpec, error) { return c.PoolNames(ctx) })},
		{"GET /v1/node <nil>", ignore(func() ([]v1.Node, error) { return c.Nodes(ctx) })},
		{"GET /v1/peer <nil>", ignore(func() ([]v1.Peer, error) { return c.Peers(ctx) })},
		{"POST /v1/node/a%2Fb/delete map[machineIsOff:true]", func() error { return c.DeleteNode(ctx, "a/b", v1.NodeDeletion{MachineIsOff: true}) }},
		{"POST /v1/node/a/reset map[key:k]", func() error { return c.ResetNode(ctx, "a", v1.NodeReset{Key: "k"}) }},
		{"GET /v1/recovery <nil>", ignore(func() (v1.Recovery, error) { return c.Recovery(ctx) })},
		{"POST /v1/recovery map[begin:true]", ignore(func() (v1.Recovery, error) { return c.ChangeRecovery(ctx, v1.RecoveryRequest{Begin: true}) })},
		{"GET /v1/trace <nil>", ignore(func() ([]v1.Trace, error) { return c.Traces(ctx, "") })},
		{"GET /v1/trace?ref=default%2Fweb <nil>", ignore(func() ([]v1.Trace, error) { return c.Traces(ctx, "default/web") })},
		{"POST /v1/gc map[dryRun:true network:porin valid:[c1:eth0]]", ignore(func() (v1.GCResult, error) {
			return c.CollectGarbage(ctx, v1.GCRequest{Network: "porin", Valid: []string{"c1:eth0"}, DryRun: true})
		})},
	}
	for _, tt := range tests {
		if err := tt.call(); err != nil || got != tt.want {
			t.Errorf("sent %q, error %v\nwant %q", got, err, tt.want)
		}
	}
}

func ignore[T any](call func() (T, error)) func() error {
	return func() error { _, err := call(); return err }
}

func TestProblem(t *testing.T) {
	want := v1.Problem{Title: "Conflict", Status: 409, Code: v1.CodeConflict, Detail: "10.1.0.7 is in use"}
	c := agent(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.WriteHeader(want.Status)
		_ = json.NewEncoder(w).Encode(want)
	})
	_, err := c.Endpoint(t.Context(), "7")
	got, ok := errors.AsType[*v1.Problem](err)
	if !ok {
		t.Fatalf("error %v is no problem", err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerOfOtherServer(t *testing.T) {
	c := agent(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) })
	_, err := c.Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "502 Bad Gateway without a problem") {
		t.Errorf("error %v", err)
	}
	c = agent(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "read answer to GET /v1/status") {
		t.Errorf("error %v", err)
	}
}

func TestUnreachableNoAgent(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	tests := []struct{ name, socket, want string }{
		{"no socket", filepath.Join(dir, "none.sock"), "agent not reachable: there is no socket " + dir + "/none.sock: the agent does not run, or listens elsewhere"},
		{"stale socket", stale, "agent not reachable: nobody listens on " + stale + ": the agent does not run"},
		{"no socket at all", filepath.Join(stale, "agent.sock"), "agent not reachable: call on "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := client.New(tt.socket)
			_, err := c.Status(t.Context())
			if !errors.Is(err, client.ErrUnreachable) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v\nwant  %s", err, tt.want)
			}
			for _, err := range c.Events(t.Context(), client.EventOptions{}) {
				if !errors.Is(err, client.ErrUnreachable) {
					t.Errorf("events: error %v", err)
				}
			}
		})
	}
}

func TestUnreachableAgentDies(t *testing.T) {
	c := agent(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.IPAM(t.Context()); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}

// forbiddenSocket names, to the child of a test, a socket that it may not use.
const forbiddenSocket = "CLIENT_TEST_FORBIDDEN_SOCKET"

// TestSocketPermissionDenied asks as the user 65534, for root may use every socket.
func TestSocketPermissionDenied(t *testing.T) {
	if socket := os.Getenv(forbiddenSocket); socket != "" {
		_, err := client.New(socket).Status(t.Context())
		if err == nil || errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "only root and its group") {
			t.Errorf("error %v", err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(socket, 0)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), forbiddenSocket+"="+socket)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDeadline(t *testing.T) {
	header := make(chan string, 1)
	c := agent(t, func(_ http.ResponseWriter, r *http.Request) {
		header <- r.Header.Get(v1.TimeoutHeader)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
	if d, err := time.ParseDuration(<-header); err != nil || d <= 0 || d > 50*time.Millisecond {
		t.Errorf("header %v, %v", d, err)
	}
}

func TestEvents(t *testing.T) {
	left := make(chan bool)
	c := agent(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.RawQuery; got != "follow=true&since=4" {
			t.Errorf("query %q", got)
		}
		for seq := range uint64(2) {
			_ = json.NewEncoder(w).Encode(v1.Event{Seq: seq + 5})
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	var got []uint64
	for event, err := range c.Events(t.Context(), client.EventOptions{Since: 4, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, event.Seq); len(got) == 2 {
			break
		}
	}
	if diff := cmp.Diff([]uint64{5, 6}, got); diff != "" {
		t.Error(diff)
	}
	<-left
}

func TestFlows(t *testing.T) {
	c := agent(t, func(w http.ResponseWriter, r *http.Request) {
		const want = "follow=true&last=7&pod=demo%2Fweb&port=80&protocol=tcp&reason=policy-egress&since=4&verdict=denied%2Cdropped"
		if got := r.URL.RawQuery; got != want {
			t.Errorf("query %q", got)
		}
		_ = json.NewEncoder(w).Encode(v1.Flow{Seq: 5})
		_ = json.NewEncoder(w).Encode(v1.Flow{Seq: 9, Lost: 3})
	})
	options := client.FlowOptions{
		Since: 4, Follow: true, Last: 7, Pod: "demo/web", Verdicts: []string{"denied", "dropped"}, Reasons: []string{"policy-egress"}, Protocol: "tcp", Port: 80,
	}
	var got []uint64
	for flow, err := range c.Flows(t.Context(), options) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, flow.Seq, flow.Lost)
	}
	if diff := cmp.Diff([]uint64{5, 0, 9, 3}, got); diff != "" {
		t.Error(diff)
	}
}

func TestEventsContextEnds(t *testing.T) {
	c := agent(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var last error
	for _, err := range c.Events(ctx, client.EventOptions{Follow: true}) {
		last = err
	}
	if !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("error %v", last)
	}
}
