package v1

import "time"

// Controller is a loop of the agent: GET /v1/controller.
type Controller struct {
	Name     string        `json:"name"`
	Runs     uint64        `json:"runs"`              // rounds that have ended; 0 for a loop that has none and waits by itself
	Failures int           `json:"failures"`          // of the last rounds, in a row
	Duration time.Duration `json:"duration"`          // of the last round, in nanoseconds
	LastRun  *time.Time    `json:"lastRun,omitempty"` // when the last round ended
	Next     *time.Time    `json:"next,omitempty"`    // when the next round is due, when that is known
	Error    string        `json:"error,omitempty"`   // of the last round
}

// Health says how the agent is.
type Health struct {
	State string      `json:"state"` // the worst of the cells': "ok", "degraded" or "failing"
	Cells []Condition `json:"cells"`
}

// Condition is how a cell of the agent is.
type Condition struct {
	Cell   string `json:"cell"`
	State  string `json:"state"`            // "ok", "degraded" (something does not work) or "failing" (a restart of the agent may help)
	Reason string `json:"reason,omitempty"` // why it is not ok
}
