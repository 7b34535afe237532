package endpointmanager

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/supervisor"
)

// health says how the manager is. It is a supervisor.HealthReporter.
type health struct{ m *manager }

func newHealth(m *manager) health { return health{m} }

// Condition implements supervisor.HealthReporter. The agent goes on without the file of its ledger, but what it writes
// is lost with it. A restart makes a new ledger, and holds what is there; but beside another file, which may lack
// endpoints, it would remove them: that is for a person to look at, and so is what is held.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "endpointmanager", State: supervisor.OK}
	if h.m.gate.isStopped() {
		return c
	}
	switch lost := h.m.ledgerFile.check(); {
	case errors.Is(lost, ledger.ErrRemoved):
		c.State, c.Reason = supervisor.Failing, lost.Error()
	case lost != nil:
		c.State, c.Reason = supervisor.Degraded, lost.Error()
	default:
		if held := h.m.held.count(); held > 0 {
			c.Reason = fmt.Sprintf("%d attachments are held: porin doctor says why", held)
		}
	}
	return c
}

// ledgerFile notices that the ledger's file is lost. All who report that ask it.
type ledgerFile struct {
	log     *slog.Logger
	records *recorder

	mu   sync.Mutex // guards the field below
	lost bool       // at the last check
}

// check returns why the ledger is lost, and logs it the first time.
func (l *ledgerFile) check() error {
	err := l.records.ledger.Lost()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch was := l.lost; {
	case err != nil && !was:
		l.log.Error("the ledger is lost: put its file back; or move away what has its place and restart the agent, which then holds the attachments that it finds", "error", err)
	case err == nil && was:
		l.log.Info("the ledger is there again")
	}
	if l.lost = err != nil; l.lost {
		return fmt.Errorf("the ledger is lost: %w", err)
	}
	return nil
}
