package ipam

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cmd/cni/internal/child"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// Plugin is an IPAM plugin, and what it is to be called with.
type Plugin struct {
	Env    []string
	Stdin  []byte
	Stderr int       // file descriptor
	Broken spec.Code // of a failure about which the plugin itself says nothing
	Turn   string    // name of the attachment in a network namespace; empty for a call about none

	name, file string
}

// maxOutput bounds what a plugin may print.
const maxOutput = 1 << 20

// Add has the plugin give addresses. After an error, too, it may have given some: the caller's next call is DEL.
func (p Plugin) Add(deadline time.Time) (spec.Given, error) {
	stdout, err := p.run("ADD", deadline)
	if err != nil {
		return spec.Given{}, err
	}
	given, err := spec.ParseGiven(stdout)
	if err != nil {
		return given, p.broken("ADD", fmt.Errorf("its answer %.200q: %w", stdout, err))
	}
	if !given.Addresses.IPv4.IsValid() && !given.Addresses.IPv6.IsValid() {
		return given, p.broken("ADD", errors.New("its answer has no address"))
	}
	return given, given.Excess(p.name)
}

// Call has the plugin do any other command.
func (p Plugin) Call(command string, deadline time.Time) error {
	_, err := p.run(command, deadline)
	return err
}

// Speaks is an error when the plugin says which versions of the specification it speaks, and this is none of them.
func (p Plugin) Speaks(version string, deadline time.Time) error {
	stdout, err := p.run("VERSION", deadline)
	if err != nil {
		return nil // it does not know this command either, and may look at no version
	}
	spoken := spec.ParseVersions(stdout)
	if len(spoken) == 0 || slices.Contains(spoken, version) {
		return nil
	}
	fault := p.broken("VERSION", fmt.Errorf("it does not speak CNI %s, but %.200s", version, strings.Join(spoken, ", ")))
	fault.Hint = "install a later one, or set cniVersion of the network configuration to one that it speaks"
	return fault
}

func (p Plugin) run(command string, deadline time.Time) (stdout []byte, err error) {
	turn := takeTurn(p.Turn, time.Now().Add(min(maxWait, time.Until(deadline)/2)))
	defer turn.end()
	stdout, status, err := child.Run(child.Command{
		Path: p.file, Env: p.environ(command), Stdin: p.Stdin, Stderr: p.Stderr, Most: maxOutput, Hold: int(turn),
	}, deadline)
	switch {
	case err != nil:
		return nil, p.broken(command, err)
	case status.Signaled():
		return nil, p.broken(command, fmt.Errorf("it was ended by the signal %s", unix.SignalName(status.Signal())))
	case status.ExitStatus() == 0:
		return stdout, nil
	}
	if fault, ok := spec.ParseError(stdout); ok {
		return nil, fault
	}
	return nil, p.broken(command, fmt.Errorf("it ended with %d and printed %.200q, which is no error of CNI", status.ExitStatus(), stdout))
}

// environ is that of the caller with another command.
func (p Plugin) environ(command string) []string {
	env := slices.DeleteFunc(slices.Clone(p.Env), func(v string) bool { return strings.HasPrefix(v, "CNI_COMMAND=") })
	return append(env, "CNI_COMMAND="+command)
}

// broken is a failure about which the plugin itself says nothing that a runtime could read.
func (p Plugin) broken(command string, err error) *spec.Error {
	hint := "look at what it wrote to the log of the container runtime"
	if errors.Is(err, child.ErrTimeout) {
		hint = `look for what it waits for, or raise "timeout" in the network configuration`
	}
	return &spec.Error{Code: p.Broken, Msg: fmt.Sprintf("%s by the IPAM plugin %s: %v", command, p.name, err), Hint: hint}
}
