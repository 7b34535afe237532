package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// envInside tells a process that it runs in the namespaces of the tests: "new" when they are yet to be prepared.
const envInside = "PORIN_TEST_INSIDE"

func inside() bool { return os.Getenv(envInside) != "" }

// outer runs the tests in an inner process and returns its exit code, which is not 0 when there is an error.
func (o *options) outer() (code int, err error) {
	if o.host {
		before, err := TakeHostSnapshot()
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, before.unchanged()) }()
	}
	if o.binaries && !Heavy() {
		if err := os.Setenv(envNoBinaries, "1"); err != nil {
			return 1, err
		}
	} else if o.binaries {
		cleanup, err := buildForAll()
		if err != nil {
			return 1, err
		}
		defer cleanup()
	}
	return reexec()
}

// reexec runs this program again, with the same arguments, in namespaces of its own. It dies with this process.
func reexec() (int, error) {
	runtime.LockOSThread() // for Pdeathsig: "parent" is the thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envInside+"=new")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start the tests in namespaces of their own: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // the inner process decides what becomes of us
		case err := <-done:
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				return 1, err
			}
			return exitCode(cmd.ProcessState), nil
		}
	}
}

func exitCode(state *os.ProcessState) int {
	if code := state.ExitCode(); code >= 0 {
		return code
	}
	return 1 // killed by a signal
}

// prepareInside makes the fresh namespaces fit to work in: lo is up, /proc shows their processes, no mount leaves
// them, and /run and the temporary files are on a tmpfs. It does nothing outside of them, and nothing twice (a fuzz
// worker is this program again).
func prepareInside() error {
	if os.Getenv(envInside) != "new" {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.Mkdir("/run/tmp", 0o1777); err != nil {
		return err
	}
	if err := loUp(); err != nil {
		return err
	}
	return errors.Join(os.Setenv("TMPDIR", "/run/tmp"), os.Setenv(envInside, "ready"))
}

// loUp brings lo up, which has the index 1 in every namespace, in the one of the calling thread.
func loUp() error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.LinkSetUp(LinkAt(1))
}
