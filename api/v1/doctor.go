package v1

import "time"

// Doctor is the answer of GET and POST /v1/doctor: where ledger, endpoints, addresses and kernel disagree.
type Doctor struct {
	Findings []Finding `json:"findings"` // empty when all agrees
	Examined time.Time `json:"examined"`
	// Duration is how long the examination took, in nanoseconds.
	Duration time.Duration `json:"duration"`
	// Errors are what could not be examined. Without findings, but with errors, nothing is known to be wrong.
	Errors []string `json:"errors,omitempty"`
	// Notes are as they may be, and worth knowing: what runs out.
	Notes []Finding `json:"notes,omitempty"`
	// Repaired is what POST has repaired, and did not find when it looked again.
	Repaired []Finding `json:"repaired,omitempty"`
}

// Finding is one disagreement.
type Finding struct {
	Kind     string `json:"kind"`               // stable, for programs: "link-orphan"
	Owner    string `json:"owner"`              // the cell that owns it
	Subject  string `json:"subject"`            // its object; the same Kind and Subject is the same finding
	Endpoint string `json:"endpoint,omitempty"` // containerID:ifname, when it is about an attachment
	Detail   string `json:"detail"`             // for people: the actual and the expected state
	// Repair is the agent's repair after it has found it twice, or a person's when Manual.
	Repair string    `json:"repair"`
	Manual bool      `json:"manual,omitempty"`
	Since  time.Time `json:"since"` // when it was first found
	Times  int       `json:"times"` // how many examinations in a row have found it
	// Outcome is how the last repair ended: empty before the first, then "repaired" or why it failed.
	Outcome string `json:"outcome,omitempty"`
}
