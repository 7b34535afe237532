package main

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

// clusterHealth is of three nodes, one of them unknown; node3 fails when the agent is sick.
func (a *fakeAgent) clusterHealth(w http.ResponseWriter, _ *http.Request) error {
	return httpx.JSON(w, http.StatusOK, a.clusterHealthAnswer())
}

func (a *fakeAgent) clusterHealthAnswer() v1.ClusterHealth {
	checked, seen := noon.Add(-10*time.Second), noon.Add(-3*time.Minute)
	probe := func(target, protocol, family, addr string) v1.HealthProbe {
		return v1.HealthProbe{
			Target: target, Protocol: protocol, Family: family, Address: netip.MustParseAddr(addr), OK: true, LastProbe: &checked, LastSeen: &checked,
			Latency: 420 * time.Microsecond, Histogram: []uint32{0, 0, 7, 0, 0, 0, 0, 0, 0, 0},
		}
	}
	well := func() []v1.HealthProbe {
		return []v1.HealthProbe{
			probe("node", "icmp", "ipv4", "192.0.2.2"), probe("endpoint", "icmp", "ipv4", "10.2.0.1"), probe("endpoint", "http", "ipv4", "10.2.0.1"),
		}
	}
	answer := v1.ClusterHealth{
		Node: "node1", Endpoint: v1.HealthEndpoint{Status: "ok", ID: 1, Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.1.0.1")}, Checked: &checked},
		Interval: time.Minute, Sample: 200, Bounds: []time.Duration{time.Millisecond},
		Nodes: []v1.NodeHealth{
			{Name: "node2", Key: "k2", Status: "ok", Probes: well()},
			{Name: "node3\x1b[2J", Key: "k3", Status: "ok", Probes: well()},
			{Name: "node4", Key: "k4", Status: "unknown", Probes: []v1.HealthProbe{}},
		},
	}
	if a.sick {
		n := &answer.Nodes[1]
		n.Status, n.Faults = "failing", []v1.HealthFault{{Part: "tunnel", Detail: "ipv4: the node answers, and nothing comes through the tunnel to its health endpoint"}}
		for i := range n.Probes[1:] {
			p := &n.Probes[1+i]
			p.OK, p.Failures, p.LastSeen, p.Error = false, 3, &seen, "no answer in time"
		}
		n.Probes[2].LastSeen = nil
	}
	return answer
}

// TestHealthColours wants columns that are aligned with colours as without, and no other control characters.
func TestHealthColours(t *testing.T) {
	render := func(colours bool) string {
		var out strings.Builder
		agent := &fakeAgent{sick: true}
		s := &session{
			environment: environment{out: &out, colours: colours, now: func() time.Time { return noon }}, options: options{global: &global{output: newChoice("table", "json")}},
		}
		h := agent.clusterHealthAnswer()
		failing := failingNodes(h.Nodes)
		if err := s.print(h, func(w io.Writer) { s.healthTable(w, h, len(h.Nodes), failing) }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	coloured, bare := render(true), render(false)
	for _, code := range []colour{green, red, yellow} {
		if !strings.Contains(coloured, "\x1b["+string(code)+"m") {
			t.Errorf("no colour %s:\n%q", code, coloured)
		}
	}
	for _, code := range []colour{plain, green, red, yellow} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+string(code)+"m", "")
	}
	if coloured != bare || strings.Contains(bare, "\x1b") {
		t.Errorf("without the colours:\n%q\nwant\n%q", coloured, bare)
	}
}
