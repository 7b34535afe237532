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
	Reasons  []ReportReason // of each endpoint that was replaced or undone
	Removed  []string       // what bore Porin's mark and belonged to nobody
}

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
	r.Reasons = append(r.Reasons, ReportReason{Attachment: a, Reasons: replaced})
}

func (r *Report) undone(a Attachment, why string) {
	r.Undone++
	r.Reasons = append(r.Reasons, ReportReason{Attachment: a, Undone: true, Reasons: []string{why}})
}

// Restored implements [Service].
func (m *manager) Restored() Report { return m.report }

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
