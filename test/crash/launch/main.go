// Command launch installs the seccomp filter that it is given, gives its parent the other end of it, and becomes the
// program that its parent wants, with this process' arguments. It is small, as it is started before each process that
// may be killed.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// envProgram names the program that it becomes.
	envProgram = "PORIN_CRASH_LAUNCH"
	// reportFD is where it has its socket: a number that no agent's own file has. The filter lets messages pass there.
	reportFD = 1000
	// maxInstructions is what the kernel takes of a filter (BPF_MAXINSNS).
	maxInstructions = 4096
)

func main() {
	fmt.Fprintln(os.Stderr, "launch:", launch(os.Getenv(envProgram))) // it returns only when it fails
	os.Exit(125)
}

func launch(program string) error {
	runtime.LockOSThread() // the filter is this thread's, which execve keeps
	if err := unix.Dup3(3, reportFD, unix.O_CLOEXEC); err != nil {
		return err
	}
	_ = unix.Close(3)
	filter := make([]unix.SockFilter, maxInstructions)
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), maxInstructions*unix.SizeofSockFilter)
	n, err := unix.Read(reportFD, buf)
	if err != nil {
		return fmt.Errorf("read the filter: %w", err)
	}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envProgram+"=") })
	args := append([]string{program}, os.Args[1:]...)
	report := binary.NativeEndian.AppendUint32(nil, uint32(os.Getpid()))
	listener, err := install(filter[:n/unix.SizeofSockFilter])
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(reportFD, report, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("report to the tracer: %w", err)
	}
	return fmt.Errorf("become %s: %w", program, unix.Exec(program, args, environ))
}

// install makes the system calls of this thread that the filter wants wait for the reader of the listener that it
// returns. The filter stays over execve, and threads and children inherit it.
func install(filter []unix.SockFilter) (listener int, err error) {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	// Once received, a notification is not taken back by a signal such as Go's preemption: no effect is seen twice.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return -1, fmt.Errorf("install a seccomp filter (needs Linux 5.19): %w", errno)
	}
	return int(fd), nil
}
