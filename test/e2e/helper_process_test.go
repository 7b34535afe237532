package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// processTimeout ends a process that ought to have ended by itself.
const processTimeout = testutil.Patience

// finished is what became of a process.
type finished struct {
	out, err string // its output
	code     int    // -1 when it was killed
}

// one says whether the process failed with a single line that has the words.
func (f finished) one(words string) bool {
	return f.code > 0 && f.out == "" && strings.Count(f.err, "\n") == 1 && strings.Contains(f.err, words)
}

// runIn runs one of the project's binaries in a node's namespace, as root or as another user.
func runIn(t testing.TB, node *testutil.Node, as *syscall.Credential, binary string, args ...string) finished {
	t.Helper()
	return run(t, node.Do, as, binary, args...)
}

// run starts it in the namespace that in enters.
func run(t testing.TB, in func(func() error) error, as *syscall.Credential, binary string, args ...string) finished {
	t.Helper()
	if !filepath.IsAbs(binary) {
		binary = filepath.Join(testutil.Build(t), binary)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := in(cmd.Start); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(processTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code says it
	return finished{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// cli runs the command line in the node's namespace.
func (r *rig) cli(args ...string) finished {
	r.Helper()
	return runIn(r, r.node, nil, "porin", append([]string{"--socket", r.node.Socket}, args...)...)
}
