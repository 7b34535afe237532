package quota

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
)

// node is an agent of the cells that the quota meets, without a kernel and without root.
type node struct {
	manager  endpointmanager.Manager
	step     *Step
	socket   string
	exporter *metrics.Exporter
	doctor   *doctor.Doctor
	lookup   endpointmanager.Lookup
}

func startNode(t *testing.T, limit int) *node {
	t.Helper()
	n := node{socket: filepath.Join(t.TempDir(), "agent.sock")}
	endpoints := endpointmanager.DefaultConfig()
	endpoints.StateDir = t.TempDir()
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		server.LockSocket(),
		endpointmanager.Module(endpoints),
		Module(Config{Endpoints: limit}),
		doctor.Module(doctor.DefaultConfig()),
		metrics.Module(metrics.DefaultConfig()),
		server.Module(server.Config{Socket: n.socket}, server.Info{}),
		fx.Provide(func(s *Step) endpoint.Steps { return endpoint.Steps{s} }),
		fx.Populate(&n.manager, &n.step, &n.exporter, &n.doctor, &n.lookup),
	)
	app.RequireStart()
	t.Cleanup(app.RequireStop)
	return &n
}

// get asks the API.
func (n *node) get(t *testing.T, path string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.socket)
	}}
	answer, err := (&http.Client{Transport: transport}).Get("http://porin" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// add attaches a container of the namespace default.
func (n *node) add(t *testing.T, attachment string) error {
	t.Helper()
	_, err := n.manager.Create(t.Context(), endpointmanagertest.Spec(attachment), nil)
	return err
}

func TestAttachTooMany(t *testing.T) {
	n := startNode(t, 1)
	if err := n.add(t, "c1:eth0"); err != nil {
		t.Fatal(err)
	}
	if err := n.add(t, "c2:eth0"); !errors.Is(err, ErrFull) {
		t.Errorf("the second ADD: error %v, want %v", err, ErrFull)
	}
	n.manager.DeleteContainer(t.Context(), "c1", endpoint.DeleteConfig{})
	if err := n.add(t, "c2:eth0"); err != nil {
		t.Errorf("after a DEL: %v", err)
	}
}

func TestRouteAndMetric(t *testing.T) {
	n := startNode(t, 5)
	if err := n.add(t, "c1:eth0"); err != nil {
		t.Fatal(err)
	}
	if got, want := n.get(t, "/v1/quota"), `{"limit":5,"used":{"default":1}}`; got != want {
		t.Errorf("GET /v1/quota: %s, want %s", got, want)
	}
	want := `
# HELP porin_quota_endpoints Endpoints on this node by Kubernetes namespace.
# TYPE porin_quota_endpoints gauge
porin_quota_endpoints{namespace="default"} 1
`
	if err := testutil.GatherAndCompare(n.exporter.Gatherer(), strings.NewReader(want), "porin_quota_endpoints"); err != nil {
		t.Error(err)
	}
}

func TestDoctorRepairsTheCount(t *testing.T) {
	n := startNode(t, 5)
	if err := n.add(t, "c1:eth0"); err != nil {
		t.Fatal(err)
	}
	clear(n.step.counted) // the fault
	answer, err := n.doctor.Examine(t.Context(), doctor.Scope{})
	if err != nil || len(answer.Findings) != 1 || answer.Findings[0].Kind != findingDiffers {
		t.Fatalf("found %+v, %v, want one %s", answer.Findings, err, findingDiffers)
	}
	found, err := newChecker(n.step, n.lookup, n.manager).Examine(t.Context(), "")
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if err := found[0].Repair(t.Context()); err != nil || n.step.Used()["default"] != 1 {
		t.Errorf("after the repair: %v, counted %v", err, n.step.Used())
	}
}
