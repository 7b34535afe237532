package policy

import (
	"fmt"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
)

// maxReported bounds the lists in each answer of GET /v1/status.
const maxReported = 100

// reporter tells how policy is: in the agent's status, of each endpoint, and to the supervisor.
type reporter struct{ policies *Policies }

func newReporter(p *Policies) reporter { return reporter{p} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	v := r.policies.view
	applied := v.Applied()
	status.Policy = v1.PolicyStatus{
		Policies: len(r.policies.List()), Revision: applied.Revision, Error: fault.Text(applied.Err), FailedSince: applied.Since,
		Audit: v.config.Audit,
	}
	var reports []engine.Report
	v.read(func(e *engine.Engine) { status.Policy.Identities, reports = e.Classes(), e.Reports() })
	for _, report := range reports[:min(len(reports), maxReported)] {
		out := v1.PolicyReport{Policies: []string{}, Text: report.Text}
		for _, id := range report.Policies[:min(len(report.Policies), maxReported)] {
			out.Policies = append(out.Policies, id.String())
		}
		status.Policy.Reports = append(status.Policy.Reports, out)
	}
}

// Describe implements endpointmanager.Describer.
func (r reporter) Describe(ep endpoint.Endpoint, description *v1.Endpoint) {
	v := r.policies.view
	out := v1.EndpointPolicy{Error: fault.Text(v.Applied().Err)}
	known := false
	v.read(func(e *engine.Engine) {
		key := keyOf(ep.Spec.Attachment)
		egress, ok := e.Table(key, model.Egress)
		ingress, _ := e.Table(key, model.Ingress)
		if known = ok; known {
			out.Egress, out.Ingress, out.Audit = egress.Restricts(), ingress.Restricts(), e.InAudit(key)
		}
	})
	if known {
		description.Policy = &out
	}
}

// Condition implements supervisor.HealthReporter.
func (r reporter) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "policy", State: supervisor.OK}
	applied := r.policies.view.Applied()
	if applied.Withheld != nil {
		c.State, c.Reason = supervisor.Degraded, withheldText(applied.Withheld)
	}
	if n := r.policies.queue.names.leftOutCount(); n > 0 {
		c.State, c.Reason = supervisor.Degraded, fmt.Sprintf("%v: %d are not in the datapath, and pods that ask for them get no answer", errNamesFull, n)
	}
	if ids := r.policies.view.notInForce(); len(ids) > 0 {
		c.State = supervisor.Degraded
		c.Reason = fmt.Sprintf("%d policies do not fit, and deny instead, or are in force as they were before; the first is %s", len(ids), ids[0])
	}
	if applied.Err != nil {
		c.State = supervisor.Degraded
		c.Reason = fmt.Sprintf("the last change of policies is not in the datapath, which has what was before; it is tried again: %v", applied.Err)
	}
	return c
}

// withheldText says why layer 7 rules are not in force.
func withheldText(err error) string {
	return fmt.Sprintf("what needs layer 7 rules which the proxy does not have is denied; it is tried again: %v", err)
}
