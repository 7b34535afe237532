package chaos

import (
	"math/rand/v2"
	"time"
)

// How long an agent lives.
const shortestLife, longestLife = 50 * time.Millisecond, 2 * time.Second

// killAgent kills the agent and starts it again at once, until it is told to stop. An agent runs at the end.
func (h *host) killAgent(random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(shortestLife + time.Duration(random.Int64N(int64(longestLife-shortestLife)))):
		}
		h.agent.End()
		h.counts.agents.Add(1)
		if err := h.agent.TryStart(); err != nil {
			h.wrongs.add("agent does not start", err.Error())
			return
		}
	}
}
