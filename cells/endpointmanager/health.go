package endpointmanager

import (
	"fmt"
	"os"

	"porin.dev/porin/cells/supervisor"
)

// health says how the manager is. It is a supervisor.HealthReporter.
type health struct{ m *manager }

func newHealth(m *manager) health { return health{m} }

// Condition implements supervisor.HealthReporter. The agent goes on without the file of its ledger, but what it writes is lost with it. A restart finds
// a new ledger, and holds what is there. What is held is for a person to look at, and no fault of the agent.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "endpointmanager", State: supervisor.OK}
	path := h.m.cfg.ledgerPath()
	switch _, err := os.Stat(path); {
	case h.m.gate.isStopped():
	case err != nil:
		c.State, c.Reason = supervisor.Failing, fmt.Sprintf("the ledger is lost: %v", err)
	case h.m.gate.isSuspended():
		c.State, c.Reason = supervisor.Degraded, ErrSuspended.Error()
	default:
		if held := len(h.m.Held()); held > 0 {
			c.Reason = fmt.Sprintf("%d attachments are held: porin doctor says why", held)
		}
	}
	return c
}
