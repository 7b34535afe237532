package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/testutil"
)

// others are the other nodes of a rig.
type others []cluster.NodeNetwork

func (o others) Peers() []cluster.NodeNetwork { return o }
func (others) Changed() <-chan struct{}       { return nil }

// answering has the health endpoint of node2 answer, and only the node itself of node3.
type answering struct{}

func (answering) Ping(_ context.Context, addr netip.Addr) (time.Duration, error) {
	if strings.HasPrefix(addr.String(), "10.0.3.") {
		return 0, probe.ErrTimeout
	}
	return 300 * time.Microsecond, nil
}

func (a answering) Hello(ctx context.Context, addr netip.Addr) (string, time.Duration, error) {
	latency, err := a.Ping(ctx, addr)
	return "node2", latency, err
}

func (r *rig) get(prober *probe.Prober) (answer v1.ClusterHealth) {
	r.Helper()
	router := chi.NewRouter()
	newRoutes(r.cfg, r.keeper, prober).Mount(router)
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/health", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		r.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return answer
}

func TestHealthCall(t *testing.T) {
	r := newRig(t)
	peers := others{{Node: cluster.NodeID{Name: "node4"}}}
	for i := range 2 {
		peers = append(peers, cluster.NodeNetwork{
			Node: cluster.NodeID{Name: fmt.Sprint("node", i+2), Key: "k"}, Routing: cluster.RoutingNative,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 2)})}, Health: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i + 2), 1})},
		})
	}
	instruments, cfg := newInstruments(), probe.DefaultConfig()
	cfg.Interval = time.Second
	prober := probe.New(cfg, peers, answering{}, instruments.observe)
	if answer := r.get(prober); answer.Endpoint.Status != v1.HealthUnknown || len(answer.Nodes) != 3 || answer.Nodes[0].Status != v1.HealthUnknown {
		t.Errorf("before the first round: %+v", answer)
	}

	ep := r.endpoint()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- prober.Run(ctx) }()
	testutil.Eventually(t, func() error {
		if nodes := r.get(prober).Nodes; len(nodes[0].Probes) != 3 || len(nodes[1].Probes) != 3 {
			return fmt.Errorf("not yet all of %+v", nodes)
		}
		return nil
	})
	cancel()
	<-ended

	answer := r.get(prober)
	if e := answer.Endpoint; e.Status != v1.HealthOK || e.ID != ep.ID || e.Addresses != ep.Addresses || e.Checked == nil {
		t.Errorf("endpoint %+v", e)
	}
	well, failing, unknown := answer.Nodes[0], answer.Nodes[1], answer.Nodes[2]
	if well.Status != v1.HealthOK || len(well.Probes) != 3 || !well.Probes[2].OK || well.Probes[2].LastSeen == nil || well.Probes[2].Latency != 300*time.Microsecond {
		t.Errorf("node2: %+v", well)
	}
	if failing.Status != v1.HealthFailing || len(failing.Faults) != 1 || failing.Faults[0].Part != "endpoint-path" || failing.Probes[1].Error == "" || failing.Probes[1].Failures == 0 {
		t.Errorf("node3: %+v", failing)
	}
	if unknown.Status != v1.HealthUnknown || len(unknown.Probes) != 0 {
		t.Errorf("node4: %+v", unknown)
	}

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(instruments, prober, r.keeper))
	want := `# HELP porin_health_endpoint_ok 1 while the node's own health endpoint passed its last check, else 0.
# TYPE porin_health_endpoint_ok gauge
porin_health_endpoint_ok 1
# HELP porin_health_nodes Other nodes, by their status (ok, failing, unknown) as this node sees it.
# TYPE porin_health_nodes gauge
porin_health_nodes{status="failing"} 1
porin_health_nodes{status="ok"} 1
porin_health_nodes{status="unknown"} 1
`
	if err := promtest.GatherAndCompare(registry, strings.NewReader(want), "porin_health_endpoint_ok", "porin_health_nodes"); err != nil {
		t.Error(err)
	}
	if n, err := promtest.GatherAndCount(registry, "porin_health_probes_total"); err != nil || n > 3*2 {
		t.Errorf("%d series of probes, %v: want some for each path, and none for each node", n, err)
	}
}

func TestHealthCallOfFailingEndpoint(t *testing.T) {
	r := newRig(t)
	prober := probe.New(probe.DefaultConfig(), others{}, answering{}, nil)
	r.failing(unix.EPERM)
	if err := r.round(); !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	if e := r.get(prober).Endpoint; e.Status != v1.HealthFailing || e.Error == "" || e.ID == 0 {
		t.Errorf("%+v", e)
	}
	r.cfg.Endpoint = false
	if e := r.get(prober).Endpoint; e.Status != v1.HealthOff {
		t.Errorf("%+v", e)
	}
}

func TestConfigValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"interval": func(c *Config) { c.ProbeInterval = time.Millisecond }, "folder": func(c *Config) { c.StateDir = "run" },
	} {
		cfg := DefaultConfig()
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
		if change(&cfg); cfg.Validate() == nil {
			t.Errorf("%s: %+v is taken", name, cfg)
		}
	}
}
