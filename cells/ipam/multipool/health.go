package multipool

import (
	"errors"

	"porin.dev/porin/cells/supervisor"
)

// health says how the controller is. It is a supervisor.HealthReporter.
type health struct{ controller *Controller }

// Condition implements supervisor.HealthReporter. A store that does not answer is the store's to report.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "multipool", State: supervisor.OK}
	if err := h.controller.waiters.refusal(); err != nil {
		c.State, c.Reason = supervisor.Degraded, "no address is given out: "+err.Error()
		return c
	}
	switch s := h.controller.Status(); {
	case s.Contested != nil:
		c.State, c.Reason = supervisor.Degraded, s.Contested.Error()
	case errors.Is(s.blocked, ErrNodeDeleted):
		c.State, c.Reason = supervisor.Degraded, "no address is given out: "+s.blocked.Error()
	case s.noPool:
		c.State, c.Reason = supervisor.Degraded, "no address is given out: there is no pool; create one with porin pool create"
	}
	return c
}
