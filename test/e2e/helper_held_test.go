package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// held is a process of the plugin that has begun, knows when that was, and goes on when it is let go: it waits for the
// end of its configuration.
type held struct {
	stdin *os.File
	done  chan error
}

// hold starts one by a call of a runtime, with more keys of its configuration or none.
func (r *rig) hold(plugin map[string]any, call func(*testutil.CNI) error) *held {
	r.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { reader.Close(); writer.Close() })
	h, written := &held{stdin: writer, done: make(chan error, 1)}, atomic.Bool{}
	cni := r.node.NewCNI(r, testutil.CNIConfig{Bin: testutil.Build(r), Plugin: plugin, Wrap: func(cmd *exec.Cmd) {
		_, _ = io.Copy(writer, cmd.Stdin) // which is less than a pipe holds
		cmd.Stdin = reader
		written.Store(true)
	}})
	go func() { h.done <- call(cni) }()
	testutil.Eventually(r, func() error {
		if !written.Load() {
			return errors.New("it was not started")
		}
		left, err := unix.IoctlGetInt(int(writer.Fd()), unix.TIOCINQ)
		if err == nil && left > 0 {
			err = fmt.Errorf("it has not read its configuration yet: %d bytes", left)
		}
		return err
	})
	return h
}

// goOn lets the process do what it was called for, and returns how that ended.
func (h *held) goOn() error {
	_ = h.stdin.Close()
	return <-h.done
}

func addOf(c *testutil.Container) func(*testutil.CNI) error {
	return func(cni *testutil.CNI) error { _, err := cni.Add(c); return err }
}

func delOf(c *testutil.Container) func(*testutil.CNI) error {
	return func(cni *testutil.CNI) error { return cni.Del(c) }
}
