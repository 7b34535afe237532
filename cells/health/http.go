package health

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are GET /v1/health.
type routes struct {
	cfg    Config
	keeper *Keeper
	prober *probe.Prober
}

func newRoutes(cfg Config, k *Keeper, p *probe.Prober) routes { return routes{cfg, k, p} }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) { r.Method(http.MethodGet, "/v1/health", httpx.Handler(s.get)) }

func (s routes) get(w http.ResponseWriter, _ *http.Request) error {
	answer := v1.ClusterHealth{
		Node: s.cfg.Node, Endpoint: s.endpoint(), Interval: s.cfg.ProbeInterval, Sample: probe.DefaultConfig().Sample,
		Bounds: probe.Bounds(), Nodes: []v1.NodeHealth{},
	}
	for _, r := range s.prober.Nodes() {
		answer.Nodes = append(answer.Nodes, nodeToV1(r))
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

func (s routes) endpoint() v1.HealthEndpoint {
	if !s.cfg.Endpoint {
		return v1.HealthEndpoint{Status: v1.HealthOff}
	}
	e := v1.HealthEndpoint{Status: v1.HealthUnknown}
	if ep, err := s.keeper.find(); err == nil {
		e.ID, e.Addresses = ep.ID, ep.Addresses
	}
	switch status := s.keeper.Status(); {
	case status.Checked.IsZero():
	case status.Err != nil:
		e.Status, e.Error, e.Checked = v1.HealthFailing, status.Err.Error(), &status.Checked
	default:
		e.Status, e.Checked = v1.HealthOK, &status.Checked
	}
	return e
}

func nodeToV1(r probe.Result) v1.NodeHealth {
	n := v1.NodeHealth{Name: r.Node.Name, Key: r.Node.Key, Status: string(r.Status), Probes: []v1.HealthProbe{}}
	for _, f := range r.Faults {
		n.Faults = append(n.Faults, v1.HealthFault{Part: string(f.Part), Detail: f.Detail})
	}
	for i, path := range probe.Paths() {
		state := r.States[i]
		if !state.Address.IsValid() {
			continue
		}
		p := v1.HealthProbe{
			Target: string(path.Target), Protocol: string(path.Protocol), Family: path.Family.String(), Address: state.Address,
			OK: state.OK(), Failures: state.Failures, Latency: state.Latency, Histogram: state.Histogram[:],
		}
		if state.Probed() {
			p.LastProbe = &state.LastProbe
		}
		if !state.LastSeen.IsZero() {
			p.LastSeen = &state.LastSeen
		}
		p.Error = fault.Text(state.Err)
		n.Probes = append(n.Probes, p)
	}
	return n
}
