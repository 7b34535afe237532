package testutil_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// envHelper makes TestHelper do something, in a run of this program of its own.
const envHelper = "PORIN_TESTUTIL_HELPER"

// TestHelper is no test: the tests below run it.
func TestHelper(t *testing.T) {
	switch os.Getenv(envHelper) {
	case "exit":
		os.Exit(7)
	case "wait":
		child := exec.Command("/proc/self/exe", "-test.run=^TestHelper$")
		child.Env = append(slices.DeleteFunc(os.Environ(), isEnv(envHelper)), envHelper+"=child")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
	case "child":
		fmt.Println("ready")
		select {} // until the namespace of processes ends
	}
}

func isEnv(name string) func(string) bool {
	return func(pair string) bool { return strings.HasPrefix(pair, name+"=") }
}

// helper is an outer process: it knows nothing of the namespaces that this test is in.
func helper(what string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelper$")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), isEnv("PORIN_TEST_INSIDE")), envHelper+"="+what)
	return cmd
}

func TestExitCode(t *testing.T) {
	testutil.Root(t)
	cmd := helper("exit")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit code of the outer process: %v, want 7\n%s", err, out)
	}
}

func TestInnerProcessesEnd(t *testing.T) {
	testutil.Root(t)
	for _, signal := range []os.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT} {
		cmd := helper("wait")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(stdout)
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("the helper said %q, %v", line, err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		// The end of the pipe is the end of the last process that has it.
		if rest, err := io.ReadAll(out); err != nil {
			t.Errorf("%v: %q, %v", signal, rest, err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: the outer process ended with success", signal)
		}
	}
}
