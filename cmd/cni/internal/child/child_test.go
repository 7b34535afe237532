package child_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cmd/cni/internal/child"
	"porin.dev/porin/internal/testutil"
)

// envCaller makes this program one that runs a shell, which sleeps, and writes its number to the file of that name.
const envCaller = "PORIN_TEST_CALLER"

func TestMain(m *testing.M) {
	if file := os.Getenv(envCaller); file != "" {
		unix.CloseOnExec(3)
		c := shell("echo $$ >" + file + ".new; mv " + file + ".new " + file + "; exec sleep 600")
		c.Hold = 3
		_, _, err := child.Run(c, time.Now().Add(time.Minute))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testutil.Main(m, testutil.NoLeaks())
}

// shell runs a script.
func shell(script string) child.Command {
	return child.Command{Path: "/bin/sh", Env: []string{"PATH=" + os.Getenv("PATH")}, Stdin: []byte(script + "\n"), Stderr: 2, Most: 1 << 20, Hold: -1}
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

func TestInputAndOutputGoAtOnce(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 100_000) // more than two pipes hold
	stdout, status, err := child.Run(child.Command{Path: "/bin/cat", Stdin: text, Stderr: 2, Most: len(text), Hold: -1}, soon())
	if err != nil || status != 0 || !bytes.Equal(stdout, text) {
		t.Errorf("%d bytes of %d, status %v, %v", len(stdout), len(text), status, err)
	}
}

func TestAProgramNeedNotRead(t *testing.T) {
	for _, script := range []string{"exit 0", "exec <&-; sleep 0.05; exit 0"} {
		c := shell(script)
		c.Stdin = append(c.Stdin, bytes.Repeat([]byte("#"), 1<<20)...)
		if stdout, status, err := child.Run(c, soon()); err != nil || status != 0 || len(stdout) > 0 {
			t.Errorf("%s: %q, status %v, %v", script, stdout, status, err)
		}
	}
}

func TestHowAProgramEnds(t *testing.T) {
	for script, want := range map[string]string{
		"echo yes; exit 0":            "yes\n0 0",
		"echo no; exit 3":             "no\n3 0",
		"echo ouch; kill -SEGV $$":    "ouch\n-1 11",
		"cat; exit 9":                 "9 0",   // its input has an end
		"exec >&-; exit 4":            "4 0",   // it closes its output early
		`printf %s "$0$1$CNI_X"`:      "sh0 0", // neither arguments nor another environment
		"sleep 600 & echo left; exit": "left\n0 0",
	} {
		c := shell(script)
		began := time.Now()
		stdout, status, err := child.Run(c, soon())
		got := strings.Replace(fmt.Sprintf("%s%d %d", stdout, status.ExitStatus(), max(status.Signal(), 0)), "/bin/", "", 1)
		if err != nil || got != want || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %q, want %q, %v, after %s", script, got, want, err, time.Since(began))
		}
	}
}

func TestAProgramThatDoesNotEndIsKilledWithItsGroup(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		within time.Duration
		want   error
	}{
		"hangs":           {"sleep 600", 100 * time.Millisecond, child.ErrTimeout},
		"closes all":      {"exec <&- >&- 2>&-; sleep 600", 100 * time.Millisecond, child.ErrTimeout},
		"ignores signals": {"trap '' TERM INT HUP QUIT; while :; do sleep 600; done", 100 * time.Millisecond, child.ErrTimeout},
		"prints":          {"while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", time.Minute, child.ErrFlood},
		"no time":         {"sleep 600", -1, child.ErrTimeout},
	} {
		pids := filepath.Join(t.TempDir(), "pids")
		began := time.Now()
		_, _, err := child.Run(shell("sleep 600 & echo $$ $! >"+pids+"; "+c.script), began.Add(c.within))
		if took := time.Since(began); !errors.Is(err, c.want) || took > 5*time.Second {
			t.Errorf("%s: %v after %s, want %v", name, err, took, c.want)
		}
		text, _ := os.ReadFile(pids) // it may not have come so far
		for pid := range strings.FieldsSeq(string(text)) {
			testutil.Eventually(t, 5*time.Second, func() error { return ended(pid) })
		}
	}
}

// ended tells whether a process is gone, or waits for somebody to ask how it ended.
func ended(pid string) error {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		return fmt.Errorf("process %s lives: %s", pid, stat)
	}
	return nil
}

func TestWhatCannotBeStarted(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("hello"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"/nowhere": unix.ENOENT, "/etc": unix.EACCES, text: unix.ENOEXEC} {
		if _, _, err := child.Run(child.Command{Path: path, Stderr: 2, Hold: -1}, soon()); !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestNoFileIsLeftOpen(t *testing.T) {
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before := open()
	for range 20 {
		_, _, _ = child.Run(shell("exit 0"), soon())
		_, _, _ = child.Run(shell("sleep 600"), time.Now().Add(5*time.Millisecond))
		_, _, _ = child.Run(child.Command{Path: "/nowhere", Stderr: 2, Hold: -1}, soon())
	}
	if after := open(); after != before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

func TestAProgramOutlivesItsCaller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	caller := exec.Command("/proc/self/exe")
	caller.Env, caller.ExtraFiles = append(os.Environ(), envCaller+"="+file), []*os.File{writer}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	var pid int
	testutil.Eventually(t, 10*time.Second, func() error {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	_ = caller.Process.Kill()
	_ = caller.Wait()
	held := unix.PollFd{Fd: int32(reader.Fd()), Events: unix.POLLIN}
	if n, err := unix.Poll([]unix.PollFd{held}, 50); n != 0 || err != nil || unix.Kill(pid, 0) != nil {
		t.Errorf("process %d has ended with its caller, or has not what it holds: %d, %v", pid, n, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if n, err := reader.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("what it held is still held: %d, %v", n, err)
	}
}
