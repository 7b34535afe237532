package multipool

import "porin.dev/porin/cells/supervisor"

// health says how the controller is. It is a supervisor.HealthReporter.
type health struct{ controller *Controller }

// Condition implements supervisor.HealthReporter. A store that does not answer is the store's to report.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "multipool", State: supervisor.OK}
	if err := h.controller.waiters.refusal(); err != nil {
		c.State, c.Reason = supervisor.Degraded, "no address is given out: "+err.Error()
	} else if err := h.controller.Status().Contested; err != nil {
		c.State, c.Reason = supervisor.Degraded, err.Error()
	}
	return c
}
