package control

import (
	"errors"
	"maps"
	"slices"
	"time"

	"porin.dev/porin/cells/supervisor"
)

// reportInterval is how often the agent hears how the proxy is, if that has changed.
const reportInterval = time.Second

func (s *Server) reportLoop() {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	told := map[*rpcConn]report{}
	var journal string
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		status := s.proxy.Status()
		r := report{InUse: status.InUse, RuleSets: status.RuleSets, Connections: status.Connections}
		journal = s.logJournal(journal)
		if err := errors.Join(status.Err, s.router.journalError()); err != nil {
			r.Error = err.Error()
		}
		s.mu.Lock()
		agents := slices.Collect(maps.Keys(s.agents))
		s.mu.Unlock()
		maps.DeleteFunc(told, func(agent *rpcConn, _ report) bool { return !slices.Contains(agents, agent) })
		for _, agent := range agents {
			if before, ok := told[agent]; !ok || before != r {
				told[agent] = r
				_ = agent.notify(methodReport, r) // an end that is gone is noticed by who reads
			}
		}
	}
}

// logJournal says whether the journal of names can be used, when that is no longer as before. It returns why not.
func (s *Server) logJournal(before string) (now string) {
	err := s.router.journalError()
	if err != nil {
		now = err.Error()
	}
	switch {
	case now == before:
	case err != nil:
		s.log.Warn("the journal of names cannot be written; trying again", "error", err)
	default:
		s.log.Info("the journal of names can be written again")
	}
	return now
}

// journalReporter tells the supervisor of porin-proxy whether names can be learned.
type journalReporter struct{ router *LearnRouter }

func newJournalReporter(l *LearnRouter) journalReporter { return journalReporter{l} }

// Condition implements supervisor.HealthReporter.
func (r journalReporter) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "control", State: supervisor.OK}
	if err := r.router.journalError(); err != nil {
		c.State, c.Reason = supervisor.Degraded, err.Error()
	}
	return c
}
