package supervisor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/task"
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
	all = append(all, conditionOfTasks(s.Tasks()))
	slices.SortFunc(all, func(a, b Condition) int { return strings.Compare(a.Cell, b.Cell) })
	return all
}

func conditionOfTasks(tasks []task.Status) Condition {
	var reasons []string
	for _, t := range tasks {
		if t.Failures >= failuresInARow {
			reasons = append(reasons, fmt.Sprintf("%s has failed %d times in a row: %v", t.Name, t.Failures, t.Err))
		}
	}
	if len(reasons) > 0 {
		return Condition{Cell: "tasks", State: Degraded, Reason: strings.Join(reasons, "; ")}
	}
	return Condition{Cell: "tasks", State: OK}
}

// worst is the state of the agent.
func worst(all []Condition) State {
	rank := map[State]int{OK: 0, Degraded: 1, Failing: 2}
	state := OK
	for _, c := range all {
		if cmp.Compare(rank[c.State], rank[state]) > 0 {
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
