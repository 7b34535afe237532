package v1

import "time"

// Trace is one operation on one endpoint, and what each of its phases took. GET /v1/trace lists the latest, newest
// first.
type Trace struct {
	Operation string    `json:"operation"`     // "add", "del" or "restore"
	Endpoint  string    `json:"endpoint"`      // containerID:ifname
	Pod       string    `json:"pod,omitempty"` // namespace/name
	Began     time.Time `json:"began"`
	// Duration is in nanoseconds, from the caller's beginning on when it said so.
	Duration time.Duration `json:"duration"`
	Phases   []Phase       `json:"phases"` // in order
	Error    string        `json:"error,omitempty"`
}
