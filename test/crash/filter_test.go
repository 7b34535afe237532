package crash

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reportFD is where the launcher has its socket: a number that no agent's own file has.
const reportFD = 1000

// Where struct seccomp_data has what the filter looks at (little endian: the lower halves of the arguments).
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// installFilter makes every system call of the calling thread wait for the reader of the listener that it returns,
// but for those that change nothing. The filter stays over execve, and threads and children inherit it.
func installFilter() (listener int, err error) {
	program := filter()
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Once received, a notification is not taken back by a signal such as Go's preemption: no effect is seen twice.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, fmt.Errorf("install a seccomp filter (needs Linux 5.19): %w", errno)
	}
	return int(fd), nil
}

func filter() []unix.SockFilter {
	allow, notify := result(unix.SECCOMP_RET_ALLOW), result(unix.SECCOMP_RET_USER_NOTIF)
	program := []unix.SockFilter{
		// Calls of another architecture have other numbers.
		load(offsetArch), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch}, notify, load(offsetNr),
	}
	for _, nr := range harmless {
		program = append(program, unless(unix.BPF_JEQ, uint32(nr), 1), allow)
	}
	return append(program,
		// The launcher's own report, without which nobody could continue it.
		unless(unix.BPF_JEQ, unix.SYS_SENDMSG, 4), load(offsetArgs), unless(unix.BPF_JEQ, reportFD, 1), allow, notify,
		// Logs, and the launcher's last words.
		unless(unix.BPF_JEQ, unix.SYS_WRITE, 4), load(offsetArgs), unless(unix.BPF_JEQ, 2, 1), allow, notify,
		// An open that makes no file changes nothing.
		unless(unix.BPF_JEQ, unix.SYS_OPENAT, 4), load(offsetArgs+2*8), unless(unix.BPF_JSET, unix.O_CREAT, 1), notify, allow,
		notify,
	)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// unless skips so many instructions when the comparison with the value does not hold.
func unless(compare uint16, value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, Jf: skip, K: value}
}

func result(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
