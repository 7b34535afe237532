package doctor

import v1 "porin.dev/porin/api/v1"

// maxReported bounds the findings of a status.
const maxReported = 20

// reporter adds what is known without an examination.
type reporter struct{ doctor *Doctor }

func newReporter(d *Doctor) reporter { return reporter{d} }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	all := r.doctor.findings.list(func(*record) bool { return true })
	status.Findings = v1.Findings{Count: len(all), First: all[:min(len(all), maxReported)]}
}
