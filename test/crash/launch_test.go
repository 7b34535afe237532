package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// envLaunch makes this program a launcher: it names the program that it becomes.
const envLaunch = "PORIN_CRASH_LAUNCH"

// launch puts this thread under the filter, gives the tracer the other end of it, and becomes the program with this
// process' arguments.
func launch(program string) error {
	runtime.LockOSThread() // the filter is this thread's, which is the one that execve keeps
	if err := unix.Dup3(3, reportFD, unix.O_CLOEXEC); err != nil {
		return err
	}
	_ = unix.Close(3)
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envLaunch+"=") })
	args := append([]string{program}, os.Args[1:]...)
	report := binary.NativeEndian.AppendUint32(nil, uint32(os.Getpid()))
	listener, err := installFilter()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(reportFD, report, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("report to the tracer: %w", err)
	}
	return fmt.Errorf("become %s: %w", program, unix.Exec(program, args, environ))
}

// receive is the other side of launch: the process under the filter, and the listener.
func receive(socket int) (pid, listener int, err error) {
	report, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(4))
	var n, rn int
	for {
		n, rn, _, _, err = unix.Recvmsg(socket, report, rights, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) { // a socket with a timeout is not read again by itself
			break
		}
	}
	if err != nil || n != len(report) {
		return 0, -1, fmt.Errorf("no report of the launcher, %d bytes: %w", n, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil || len(messages) != 1 {
		return 0, -1, fmt.Errorf("no file in the report of the launcher: %w", err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return 0, -1, fmt.Errorf("no file in the report of the launcher: %w", err)
	}
	return int(binary.NativeEndian.Uint32(report)), files[0], nil
}
