package control

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
)

// reporter tells how the proxy is: in the agent's status, and to the supervisor.
type reporter struct{ client *Client }

func newReporter(c *Client) reporter { return reporter{c} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	s := r.client.Status()
	status.Proxy = v1.ProxyStatus{
		InUse: s.InUse, RuleSets: s.RuleSets, Connections: s.Connections, External: true, Connected: s.Connected, PID: s.PID, Version: s.Version, Previous: s.Previous,
	}
	status.Proxy.Error = fault.Text(s.Err)
}

// Condition implements supervisor.HealthReporter.
func (r reporter) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "proxy", State: supervisor.OK}
	if err := r.client.Status().Err; err != nil {
		c.State, c.Reason = supervisor.Degraded, fmt.Sprintf("layer 7 rules: %v", err)
	}
	return c
}

// checker is the doctor.Checker of a proxy in a process of its own, which repairs its way by itself.
type checker struct{ client *Client }

func newChecker(c *Client) checker { return checker{c} }

const notConnected = "proxy-not-connected"

// Owner implements doctor.Checker.
func (checker) Owner() string { return "proxy" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name: notConnected, Meaning: "policies have layer 7 rules, and porin-proxy is not connected: connections that need it go on with the rules that it has, or wait for it if it does not run",
		Repair: "start porin-proxy, with the --proxy-socket of the agent",
	}}
}

// Examine implements doctor.Checker.
func (c checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	s := c.client.Status()
	if only != "" || s.Connected || s.Err == nil {
		return nil, nil
	}
	return []doctor.Finding{{Kind: notConnected, Subject: c.client.cfg.Socket, Detail: s.Err.Error()}}, nil
}

// newCollector shows how the proxy is. What becomes of requests the proxy counts itself.
func newCollector(c *Client) *metrics.Values {
	v := metrics.NewValues("porin_proxy_")
	connected := v.Gauge("connected", "1 when porin-proxy is connected to the agent, else 0.")
	sets := v.Gauge("rule_sets", "Sets of layer 7 rules that the proxy has.")
	connections := v.Gauge("connections", "Connections that go through the proxy.")
	v.Read = func(ch chan<- prometheus.Metric) {
		s := c.Status()
		connected.SendBool(ch, s.Connected)
		sets.Send(ch, float64(s.RuleSets))
		connections.Send(ch, float64(s.Connections))
	}
	return v
}
