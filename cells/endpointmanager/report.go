package endpointmanager

import (
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// Report counts what a start made of the ledger.
type Report struct {
	Adopted  int // endpoints brought back as they were
	Replaced int // endpoints brought back with restored parts
	Undone   int // attachments that were half made, half deleted, deleted meanwhile, or could not be brought back
	Duration time.Duration
	Reasons  []ReportReason // of the endpoints that were replaced or undone, the first 100
	Removed  []string       // things with Porin's mark that belonged to no endpoint, the first 100
}

// maxReported bounds the lists of a Report: it is a part of each answer of GET /v1/status.
const maxReported = 100

// ReportReason is why an endpoint was not brought back as it was.
type ReportReason struct {
	Attachment endpoint.Attachment
	Undone     bool // else replaced
	Reasons    []string
}

func (r *Report) adopted(a endpoint.Attachment, replaced []string) {
	if len(replaced) == 0 {
		r.Adopted++
		return
	}
	r.Replaced++
	r.explain(ReportReason{Attachment: a, Reasons: replaced})
}

func (r *Report) undone(a endpoint.Attachment, why string) {
	r.Undone++
	r.explain(ReportReason{Attachment: a, Undone: true, Reasons: []string{why}})
}

func (r *Report) explain(reason ReportReason) {
	if len(r.Reasons) < maxReported {
		r.Reasons = append(r.Reasons, reason)
	}
}

func (r *Report) removed(names []string) {
	r.Removed = append(r.Removed, names[:min(len(names), maxReported-len(r.Removed))]...)
}

func (r Report) toV1() v1.Restored {
	out := v1.Restored{Adopted: r.Adopted, Replaced: r.Replaced, Undone: r.Undone, Duration: r.Duration, Removed: r.Removed}
	for _, reason := range r.Reasons {
		outcome := "replaced"
		if reason.Undone {
			outcome = "undone"
		}
		out.Reasons = append(out.Reasons, v1.RestoredEndpoint{
			Endpoint: reason.Attachment.String(), Outcome: outcome, Reasons: reason.Reasons,
		})
	}
	return out
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
	status.Restored = r.service.Restored().toV1()
	status.Held = heldToV1(r.holder.Held())
}
