package proxy

import (
	"errors"
	"fmt"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/supervisor"
)

// Status is what an operator wants to know.
type Status struct {
	InUse       bool // packets can get to the proxy
	RuleSets    int
	Connections int
	Err         error // why it does not work, or not as it should
}

// Status returns how the proxy is.
func (p *Proxy) Status() Status {
	open, err := p.use.state()
	connections, _ := p.listener.Connections()
	return Status{InUse: open, RuleSets: p.use.rules(), Connections: connections, Err: errors.Join(err, p.redirect.Damage())}
}

// reporter tells how the proxy is: in the agent's status, and to the supervisor.
type reporter struct{ proxy *Proxy }

func newReporter(p *Proxy) reporter { return reporter{p} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	s := r.proxy.Status()
	status.Proxy = v1.ProxyStatus{InUse: s.InUse, RuleSets: s.RuleSets, Connections: s.Connections}
	if s.Err != nil {
		status.Proxy.Error = s.Err.Error()
	}
}

// Condition implements supervisor.HealthReporter.
func (r reporter) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "proxy", State: supervisor.OK}
	if err := r.proxy.Status().Err; err != nil {
		c.State, c.Reason = supervisor.Degraded, fmt.Sprintf("the way into the proxy is not as it should be; it is tried again: %v", err)
	}
	return c
}
