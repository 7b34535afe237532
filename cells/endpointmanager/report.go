package endpointmanager

import (
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Report is what a start found in the ledger and made of it.
type Report struct {
	Adopted  int // endpoints brought back as they were
	Replaced int // endpoints brought back with parts made anew
	Undone   int // attachments that were half made, half deleted, deleted meanwhile, or could not be brought back
	Duration time.Duration
	Reasons  []ReportReason // of the endpoints that were replaced or undone, the first 100
	Removed  []string       // what bore Porin's mark and belonged to nobody, the first 100
}

// most bounds the lists of a Report: it is a part of each answer of GET /v1/status.
const most = 100

// ReportReason is why an endpoint was not brought back as it was.
type ReportReason struct {
	Attachment Attachment
	Undone     bool // else replaced
	Reasons    []string
}

// halfDone is why a record of that phase is undone at a start.
var halfDone = map[phase]string{
	intent:   "its ADD was not whole when the agent ended",
	deleting: "its DEL was not whole when the agent ended",
}

func (r *Report) adopted(a Attachment, replaced []string) {
	if len(replaced) == 0 {
		r.Adopted++
		return
	}
	r.Replaced++
	r.explain(ReportReason{Attachment: a, Reasons: replaced})
}

func (r *Report) undone(a Attachment, why string) {
	r.Undone++
	r.explain(ReportReason{Attachment: a, Undone: true, Reasons: []string{why}})
}

func (r *Report) explain(reason ReportReason) {
	if len(r.Reasons) < most {
		r.Reasons = append(r.Reasons, reason)
	}
}

func (r *Report) removed(names []string) {
	r.Removed = append(r.Removed, names[:min(len(names), most-len(r.Removed))]...)
}

// Restored implements [Service]. There is none while the manager is suspended.
func (m *manager) Restored() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspended != nil {
		return Report{}
	}
	return m.report
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
