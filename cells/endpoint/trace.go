package endpoint

import "time"

// Operation is what was done to an endpoint.
type Operation string

// The operations there are.
const (
	OperationAdd     Operation = "add"
	OperationDel     Operation = "del"
	OperationRestore Operation = "restore"
	OperationRepair  Operation = "repair"
)

// Trace is one operation on one endpoint. The phases are, in order and as far as it came: "plugin" (from the
// caller's Began until the request was read), "queue", "admission", "ledger-intent", each step by its name,
// "ledger-commit", and "undo" after a failure. Err says which of them took the time.
type Trace struct {
	Operation Operation
	Endpoint  Endpoint // as it was at the end
	Began     time.Time
	Duration  time.Duration // without the phase "plugin"
	Phases    []Phase
	Err       error
}

// Phase is one part of an operation.
type Phase struct {
	Name     string
	Duration time.Duration
	Err      error
}

// SlowestPhase is the phase that took the largest part of the operation; false when there is none.
func (t Trace) SlowestPhase() (slowest Phase, ok bool) {
	for _, p := range t.Phases {
		if p.Name != "undo" && p.Name != "plugin" && p.Duration >= slowest.Duration {
			slowest, ok = p, true
		}
	}
	return slowest, ok
}
