package endpointmanager

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// maxReported bounds the lists of a report: it is a part of each answer of GET /v1/status.
const maxReported = 100

// report is what a start made of the ledger.
type report struct{ v1.Restored }

func (r *report) adopted(a endpoint.Attachment, replaced []string) {
	if len(replaced) == 0 {
		r.Adopted++
		return
	}
	r.Replaced++
	r.explain(a, "replaced", replaced)
}

func (r *report) undone(a endpoint.Attachment, why string) {
	r.Undone++
	r.explain(a, "undone", []string{why})
}

func (r *report) explain(a endpoint.Attachment, outcome string, reasons []string) {
	if len(r.Reasons) < maxReported {
		r.Reasons = append(r.Reasons, v1.RestoredEndpoint{Endpoint: a.String(), Outcome: outcome, Reasons: reasons})
	}
}

func (r *report) removed(names []string) {
	r.Removed = append(r.Removed, names[:min(len(names), maxReported-len(r.Removed))]...)
}

// reporter is the manager's part of GET /v1/status.
type reporter struct {
	table   *Table
	service Service
	holder  Holder
}

func newReporter(table *Table, service Service, holder Holder) reporter {
	return reporter{table, service, holder}
}

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	status.Endpoints = map[string]int{}
	for state, n := range r.table.countByState() {
		if n > 0 {
			status.Endpoints[string(state)] = n
		}
	}
	status.Restored = r.service.Restored()
	held := r.holder.Held()
	status.Held = v1.Held{Count: len(held)}
	for _, h := range held[:min(len(held), maxReported)] {
		ep := h.Endpoint
		status.Held.Endpoints = append(status.Held.Endpoints, v1.HeldEndpoint{
			Endpoint: ep.Spec.Attachment.String(), Link: ep.Host.Name, Addresses: v1.Addresses(ep.Addresses),
			Reason: string(h.Reason), Detail: h.Detail,
		})
	}
}
