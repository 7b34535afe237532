package proxy

import (
	"fmt"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
)

// reporter tells how the proxy is: in the agent's status, and to the supervisor.
type reporter struct{ proxy *Proxy }

func newReporter(p *Proxy) reporter { return reporter{p} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	s := r.proxy.Status()
	status.Proxy = v1.ProxyStatus{InUse: s.InUse, RuleSets: s.RuleSets, Connections: s.Connections}
	status.Proxy.Error = fault.Text(s.Err)
}

// Condition implements supervisor.HealthReporter.
func (r reporter) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "proxy", State: supervisor.OK}
	if err := r.proxy.Status().Err; err != nil {
		c.State, c.Reason = supervisor.Degraded, fmt.Sprintf("the way into the proxy is not as it should be; it is tried again: %v", err)
	}
	return c
}
