package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/heartbeat"
)

// process is what a process has of the world around it.
type process struct {
	args           []string
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// versions are the versions of the CNI specification that the agent supports, oldest first.
var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// run executes the command that the environment names and returns the exit code. The result or error is on stdout.
func run(p process) int {
	began := moment{wall: time.Now(), boot: boottime.Now()}
	command := p.getenv("CNI_COMMAND")
	switch command {
	case "":
		if len(p.args) > 0 && p.args[0] == "install" {
			return p.install(p.args[1:])
		}
		_, _ = io.WriteString(p.stderr, "porin-cni is a CNI plugin: a container runtime starts it, with CNI_COMMAND in the environment.\n"+
			"It speaks CNI "+strings.Join(versions, ", ")+".\n"+
			"porin-cni install DIR copies it to DIR/porin-cni, if that differs.\n")
		return 0
	case "VERSION":
		return p.print(json.Marshal(map[string]any{"cniVersion": versions[len(versions)-1], "supportedVersions": versions}))
	}
	c, err := readCall(p, command, began)
	if err == nil {
		var out []byte
		if out, err = c.do(); err == nil {
			return p.print(out, nil)
		}
	}
	if printed, ok := errors.AsType[*agentError](err); ok {
		_ = p.print(printed.body, nil)
		return 1
	}
	_ = p.print(json.Marshal(asFailure(err, c.config.CNIVersion)))
	return 1
}

func (p process) print(out []byte, err error) int {
	if err == nil && len(out) > 0 {
		_, err = p.stdout.Write(append(out, '\n'))
	}
	if err != nil {
		return 1 // stdout is closed
	}
	return 0
}

// moment is a point in time on both clocks that matter.
type moment struct {
	wall time.Time     // and monotonic
	boot time.Duration // CLOCK_BOOTTIME, which goes on while the machine sleeps, and which the agent shares
}

// do carries the call to the agent. Its error is what to print.
func (c *call) do() ([]byte, error) {
	switch c.command {
	case "ADD":
		return c.askUntilAgentIsThere()
	case "DEL":
		return nil, c.delete()
	case "STATUS":
		return nil, c.status()
	}
	out, err := c.ask(c.deadline)
	return out, c.explain(err)
}

// askUntilAgentIsThere is for ADD: until the deadline it repeats the call while no agent listens, because one is
// restarted or upgraded, and if the agent ends in the middle of the call. ADD is idempotent.
func (c *call) askUntilAgentIsThere() ([]byte, error) {
	for {
		out, err := c.ask(c.deadline)
		now := time.Now()
		pause := pauseAfter(now.Sub(c.began.wall))
		if !errors.Is(err, errCut) && !errors.Is(err, errNoAgent) || now.Add(pause).After(c.deadline) {
			return out, c.explain(err)
		}
		time.Sleep(pause)
	}
}

// pauseAfter is the pause before the next try: an eighth of the time waited, from 10 to 250 ms. The ADDs of many pods
// may wait at once, and the agent that they wait for needs the processors to start.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/8, 10*time.Millisecond), 250*time.Millisecond)
}

// explain says what a call that the agent did not carry out means to a runtime.
func (c *call) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*failure](err); known || isAgentError(err) {
		return err
	}
	f := &failure{Code: codeTryAgain, Msg: c.command + " of " + c.subject() + ": " + err.Error(), Details: "look at the log of porin-agent"}
	problem, refused := errors.AsType[*v1.Problem](err)
	switch {
	case refused && problem.Code == v1.CodeForbidden:
		f.Code, f.Details = codeInternal, "run the container runtime as root"
	case refused && (problem.Code == v1.CodeInvalid || problem.Code == v1.CodeTooLarge):
		f.Code = codeBadConfig
	case refused && problem.Code == v1.CodeNotFound:
		f.Details = "upgrade porin-agent: it does not know this call of porin-cni"
	case errors.Is(err, errTimeout):
		f.Details = `look at the log of porin-agent, or raise "timeout" in the network configuration`
	case errors.Is(err, errCut):
		f.Details = "look at the log of porin-agent: it may have ended"
	case errors.Is(err, errNoAgent):
		f.Details = `start porin-agent, or correct "socket" in the network configuration`
	}
	return f
}

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
