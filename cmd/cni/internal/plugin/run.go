package plugin

import (
	"io"
	"strings"
	"time"

	"porin.dev/porin/cmd/cni/internal/agent"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/boottime"
)

// IO is what a process has of the world around it.
type IO struct {
	Getenv         func(string) string
	Environ        func() []string // all of what Getenv knows
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run executes the command that the environment names and returns the exit code. The result or error is on Stdout.
func Run(std IO) int {
	began := now()
	call, fault := spec.Read(std.Getenv, std.Stdin)
	if call.Command == "" && fault == nil {
		return usage(std.Stderr)
	}
	var (
		out []byte
		err error
	)
	if fault == nil {
		t := newTask(call, began)
		t.io = std
		out, err = t.run()
	} else {
		err = fault
	}
	if err != nil {
		_, _ = std.Stdout.Write(spec.AsError(err).JSON(call.Config.CNIVersion))
		return 1
	}
	if _, err := std.Stdout.Write(out); err != nil {
		return 1 // and nobody left to tell
	}
	return 0
}

func usage(stderr io.Writer) int {
	_, _ = io.WriteString(stderr, "porin-cni is a CNI plugin: a container runtime starts it, with CNI_COMMAND in the environment.\n"+
		"It speaks CNI "+strings.Join(spec.Versions(), ", ")+".\n")
	return 0
}

// instant is a moment on both clocks that matter.
type instant struct {
	wall time.Time     // and monotonic
	boot time.Duration // CLOCK_BOOTTIME, which goes on while the machine sleeps
}

func now() instant { return instant{wall: time.Now(), boot: boottime.Now()} }

// task is one call being executed.
type task struct {
	spec.Call
	began    instant
	deadline time.Time
	agent    agent.Client
	later    bool // of a DEL: the attachment was found to be of a later ADD
	io       IO   // of which Stderr goes into the logs of runtimes
}

func newTask(call spec.Call, began instant) *task {
	return &task{
		Call: call, began: began, deadline: began.wall.Add(call.Config.Timeout),
		agent: agent.Client{Socket: call.Config.Socket}, io: IO{Stderr: io.Discard},
	}
}

func (t *task) run() ([]byte, error) {
	switch t.Command {
	case "ADD":
		return t.add()
	case "DEL":
		return nil, t.del()
	case "CHECK":
		return nil, t.check()
	case "GC":
		return nil, t.gc()
	case "STATUS":
		return nil, t.status()
	}
	return spec.VersionJSON(), nil
}

func (t *task) attachment() spec.Attachment {
	return spec.Attachment{ContainerID: t.ContainerID, IfName: t.IfName}
}
