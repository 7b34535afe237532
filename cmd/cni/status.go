package main

import (
	"time"

	"porin.dev/porin/internal/heartbeat"
)

// statusTimeout bounds the wait for an agent that hangs: runtimes hold locks during STATUS, and ADD and DEL stall.
const statusTimeout = 2 * time.Second

// status asks the agent. Without one it succeeds while an agent was there lately: a runtime makes the node NotReady
// when STATUS fails, and an agent is restarted now and then.
func (c *call) status() error {
	deadline := c.began.wall.Add(statusTimeout)
	if deadline.After(c.deadline) {
		deadline = c.deadline
	}
	_, err := c.ask(deadline)
	if err == nil || isAgentError(err) {
		return err
	}
	if stale := heartbeat.Check(c.config.StateDir); stale != nil {
		return &failure{
			Code: codeNotAvailable, Msg: "ask for the status of the agent: " + err.Error() + ": " + stale.Error(),
			Details: `start porin-agent, or correct "socket" in the network configuration`,
		}
	}
	return nil
}
