package control

import (
	"maps"
	"slices"
	"time"
)

// reportInterval is how often the agent hears how the proxy is, if that has changed.
const reportInterval = time.Second

func (s *Server) reportLoop() {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	told := map[*rpcConn]report{}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		status := s.proxy.Status()
		r := report{InUse: status.InUse, RuleSets: status.RuleSets, Connections: status.Connections}
		if status.Err != nil {
			r.Error = status.Err.Error()
		}
		s.learner.acknowledged.expire()
		s.mu.Lock()
		agents := slices.Collect(maps.Keys(s.agents))
		s.mu.Unlock()
		maps.DeleteFunc(told, func(agent *rpcConn, _ report) bool { return !slices.Contains(agents, agent) })
		for _, agent := range agents {
			if before, ok := told[agent]; !ok || before != r {
				told[agent] = r
				_ = agent.notify(methodReport, r) // the reader notices a closed connection
			}
		}
	}
}
