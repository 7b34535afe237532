package endpointmanager

import (
	"errors"
	"fmt"

	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/supervisor"
)

// health is the manager's condition. It is a supervisor.HealthReporter.
type health struct{ m *manager }

func newHealth(m *manager) health { return health{m} }

// Condition implements supervisor.HealthReporter. The agent goes on without the file of its ledger, but its writes are
// lost with it. A restart makes a new ledger, and holds the attachments that it finds. Beside another file, which may
// lack endpoints, a restart would remove them: an administrator has to look at that, and at held attachments.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "endpointmanager", State: supervisor.OK}
	if h.m.registry.refusal() != nil {
		return c
	}
	switch lost := checkLedger(h.m); {
	case errors.Is(lost, ledger.ErrRemoved):
		c.State, c.Reason = supervisor.Failing, lost.Error()
	case lost != nil:
		c.State, c.Reason = supervisor.Degraded, lost.Error()
	default:
		if held := len(h.m.Held()); held > 0 {
			c.Reason = fmt.Sprintf("%d attachments are held: porin doctor says why", held)
		}
	}
	return c
}

// checkLedger returns why the file of the ledger is lost, and logs it the first time.
func checkLedger(m *manager) error {
	err := m.ledger.Lost()
	was := false
	m.registry.withLock(func() { was, m.registry.lost = m.registry.lost, err != nil })
	switch {
	case err != nil && !was:
		m.log.Error("the ledger is lost: put its file back; or move away what has its place and restart the agent, which then holds the attachments that it finds", "error", err)
	case err == nil && was:
		m.log.Info("the ledger is there again")
	}
	if err != nil {
		return fmt.Errorf("the ledger is lost: %w", err)
	}
	return nil
}
