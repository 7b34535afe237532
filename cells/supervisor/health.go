package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
)

// State is how a cell is.
type State string

// The states, from good to bad.
const (
	OK       State = "ok"
	Degraded State = "degraded" // something does not work, and a restart alone does not mend it
	Failing  State = "failing"  // it cannot do its work, and a restart of the agent may help
)

// Condition is the state of a cell, and why; Reason is "" when it is [OK].
type Condition struct {
	Cell   string
	State  State
	Reason string
}

// HealthReporter tells how its cell is. Condition is called for each request, concurrently, and takes a second at the
// most.
type HealthReporter interface{ Condition() Condition }

// Health contributes the [HealthReporter] that newReporter builds: supervisor.Health(newReporter).
func Health(newReporter any) fx.Option {
	return fx.Provide(fx.Annotate(newReporter, fx.As(new(HealthReporter)), fx.ResultTags(`group:"supervisor.reporters"`)))
}

// failuresInARow is from how many on a task degrades the agent.
const failuresInARow = 3

// Conditions returns how each cell is, by name, and how the tasks are.
func (s *Supervisor) Conditions() (all []Condition) {
	for _, r := range s.reporters {
		all = append(all, r.Condition())
	}
	var reasons []string
	for _, t := range s.Tasks() {
		if t.Failures >= failuresInARow {
			reasons = append(reasons, fmt.Sprintf("%s has failed %d times in a row: %v", t.Name, t.Failures, t.Err))
		}
	}
	tasks := Condition{Cell: "tasks", State: OK, Reason: strings.Join(reasons, "; ")}
	if len(reasons) > 0 {
		tasks.State = Degraded
	}
	all = append(all, tasks)
	slices.SortFunc(all, func(a, b Condition) int { return strings.Compare(a.Cell, b.Cell) })
	return all
}

// worst is the state of the agent.
func worst(all []Condition) State {
	rank := map[State]int{OK: 0, Degraded: 1, Failing: 2}
	state := OK
	for _, c := range all {
		if rank[c.State] > rank[state] {
			state = c.State
		}
	}
	return state
}

// Report implements server.StatusReporter. An agent that is failing is not ready, as at /readyz.
func (s *Supervisor) Report(status *v1.Status) {
	all := s.Conditions()
	status.Ready = status.Ready && worst(all) != Failing
	status.Health = v1.Health{State: string(worst(all)), Cells: []v1.Condition{}}
	for _, c := range all {
		status.Health.Cells = append(status.Health.Cells, v1.Condition{Cell: c.Cell, State: string(c.State), Reason: c.Reason})
	}
}
