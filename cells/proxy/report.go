package proxy

import (
	"context"
	"fmt"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/proxy/redirect"
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

// The kinds of findings.
const (
	deviceDiffers   = "proxy-device-differs"
	deviceForeign   = "proxy-device-foreign"
	routesDiffer    = "proxy-routes-differ"
	tableDiffers    = "proxy-table-differs"
	listenerDiffers = "proxy-listener-differs"
)

var kindOf = map[redirect.Part]string{
	redirect.PartDevice: deviceDiffers, redirect.PartRoutes: routesDiffer, redirect.PartTable: tableDiffers, redirect.PartListener: listenerDiffers,
}

// checker is the doctor.Checker of the way into the proxy.
type checker struct{ redirect *redirect.Redirect }

func newChecker(p *Proxy) checker { return checker{p.redirect} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "proxy" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	const effect = ": connections that need layer 7 rules may fail or stall"
	return []doctor.Kind{
		{
			Name: deviceDiffers, Meaning: "the device porin-l7, or a setting of it, is not as it should be" + effect,
			Repair: "the device is set up again, or replaced",
		},
		{
			Name: deviceForeign, Meaning: "a device of another program has the name porin-l7" + effect,
			Repair: "rename or remove that device",
		},
		{
			Name: routesDiffer, Meaning: "the routing rules 90 to 92 or the routing table 10247 are not as they should be" + effect,
			Repair: "they are written again; others' routes in that table are removed",
		},
		{
			Name: tableDiffers, Meaning: "the table inet porin-proxy of nftables is not as it should be" + effect,
			Repair: "the table is written again",
		},
		{
			Name: listenerDiffers, Meaning: "the program select_listener is not attached, lacks the proxy's sockets, or the programs redirect elsewhere" + effect,
			Repair: "the program is attached again with the sockets",
		},
	}
}

// Examine implements doctor.Checker. All pods share the way, so there is nothing about one attachment alone.
func (c checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	differences, err := c.redirect.Compare()
	for _, d := range differences {
		f := doctor.Finding{Kind: kindOf[d.Part], Subject: d.Subject, Detail: d.Detail, Repair: c.repair}
		if d.Foreign {
			f.Kind, f.Repair = deviceForeign, nil
		}
		findings = append(findings, f)
	}
	return findings, err
}

func (c checker) repair(context.Context) error { return c.redirect.Repair() }
