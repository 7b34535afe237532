package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
)

// Agent is a running porin-agent on a node.
type Agent struct {
	Node *Node
	// Started is how long it took from exec until the API said that it is ready.
	Started time.Duration
	// Wrap may change the command before each start; nil leaves it. See [Wrapper].
	Wrap Wrapper

	bin   string
	flags []string
	cmd   *exec.Cmd
	log   string // file
	done  chan struct{}
}

// StartAgent runs bin/porin-agent in the node's namespace with the node's folders, and waits until it is ready. Flags
// are added to those and win over them. The agent is killed at the end of the test; its log is shown when the test
// fails.
func (n *Node) StartAgent(t testing.TB, bin string, flags ...string) *Agent {
	t.Helper()
	a := n.NewAgent(bin, flags...)
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Logf("log of the agent on %s:\n%s", n.Name, a.Log())
		}
	})
	a.Start(t)
	return a
}

// NewAgent prepares an agent that is not running. Whoever starts it ends it.
func (n *Node) NewAgent(bin string, flags ...string) *Agent {
	all := []string{
		"--node-name=" + n.Name, "--api-socket=" + n.Socket, "--state-dir=" + n.StateDir, "--bpf-root=" + n.BPFRoot,
		"--store-dir=" + filepath.Join(n.Dir, "store"), "--cni-bin-dirs=" + n.PluginDir,
	}
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--ipam-") || strings.HasPrefix(f, "--config") }) {
		all = append(all, "--ipam-pod-cidr="+n.PodIPv4.String()+","+n.PodIPv6.String())
	}
	return &Agent{Node: n, bin: bin, flags: append(all, flags...), log: filepath.Join(n.Dir, "agent.log")}
}

// Configure gives the next start other flags, as [Node.NewAgent] takes them.
func (a *Agent) Configure(flags ...string) { a.flags = a.Node.NewAgent(a.bin, flags...).flags }

// Use gives the next start the binary of another folder.
func (a *Agent) Use(bin string) { a.bin = bin }

// Start runs the agent and waits until it is ready.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	if err := a.start(); err != nil {
		t.Fatalf("start the agent on %s: %v\n%s", a.Node.Name, err, a.Log())
	}
}

// TryStart is Start for who expects that the agent may end before it is ready, which is an error.
func (a *Agent) TryStart() error { return a.start() }

func (a *Agent) start() error {
	began := time.Now()
	if err := a.exec(); err != nil {
		return err
	}
	err := Poll(Patience, func() error {
		select {
		case <-a.done:
			return nil // asked below
		default:
		}
		var status v1.Status
		if err := a.Get("/v1/status", &status); err != nil {
			return err
		}
		if !status.Ready {
			return errors.New("it says that it is not ready")
		}
		return nil
	})
	a.Started = time.Since(began)
	if !a.Running() {
		return fmt.Errorf("it ended: %v", a.cmd.ProcessState)
	}
	return err
}

// noHealthEndpoint leaves out an endpoint and its addresses, which tests do not count on; a flag wins over it. An agent
// of another version need not know it.
const noHealthEndpoint = "PORIN_HEALTH_ENDPOINT=false"

// exec starts the process on a thread in the node's namespace.
func (a *Agent) exec() error {
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(a.bin, "porin-agent"), a.flags...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), noHealthEndpoint)
	a.Wrap.apply(cmd)
	if err := a.Node.Do(cmd.Start); err != nil {
		return err
	}
	a.cmd, a.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		_ = cmd.Wait()
	}(a.done)
	return nil
}

// Command is a command of the program, such as cleanup, with the agent's flags and Wrap. It is to be started in the
// node's namespace.
func (a *Agent) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(a.bin, "porin-agent"), append(args, a.flags...)...)
	a.Wrap.apply(cmd)
	return cmd
}

// Running says whether the process lives.
func (a *Agent) Running() bool {
	if a.cmd == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// PID is the process that runs, or ran last.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Log is what all runs of the agent wrote so far.
func (a *Agent) Log() string {
	text, _ := os.ReadFile(a.log)
	return string(text)
}

// Kill ends the agent without warning (SIGKILL).
func (a *Agent) Kill(t testing.TB) {
	t.Helper()
	if !a.Running() {
		t.Fatalf("kill the agent on %s: it does not run\n%s", a.Node.Name, a.Log())
	}
	a.kill()
}

// End is Kill for an agent that may have ended already, or never started.
func (a *Agent) End() { a.kill() }

// Ended waits until the process has ended by itself, or by another's hand, and says whether it has.
func (a *Agent) Ended(timeout time.Duration) bool {
	return Poll(timeout, func() error {
		if a.Running() {
			return errors.New("it runs")
		}
		return nil
	}) == nil
}

func (a *Agent) kill() {
	if a.Running() {
		_ = a.cmd.Process.Kill()
		<-a.done
	}
}

// Stop asks the agent to end (SIGTERM), and fails the test when it does not, or not with exit code 0.
func (a *Agent) Stop(t testing.TB) {
	t.Helper()
	if !a.Running() {
		t.Fatalf("stop the agent on %s: it does not run\n%s", a.Node.Name, a.Log())
	}
	_ = a.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(Patience):
		t.Fatalf("the agent on %s does not stop\n%s", a.Node.Name, a.Log())
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent on %s stopped with %v\n%s", a.Node.Name, a.cmd.ProcessState, a.Log())
	}
}

// Restart kills the agent if it runs, and starts it again, with other flags if any are given.
func (a *Agent) Restart(t testing.TB, flags ...string) {
	t.Helper()
	a.kill()
	if len(flags) > 0 {
		a.Configure(flags...)
	}
	a.Start(t)
}
