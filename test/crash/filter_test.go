package crash

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// reportFD is where the launcher has its socket.
const reportFD = 1000

// Where struct seccomp_data has what the filter looks at (little endian: the lower halves of the arguments).
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// filter makes every system call wait for the tracer, except calls that change nothing.
func filter() []unix.SockFilter {
	allow, notify := result(unix.SECCOMP_RET_ALLOW), result(unix.SECCOMP_RET_USER_NOTIF)
	program := []unix.SockFilter{
		// Calls of another architecture have other numbers.
		load(offsetArch), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch}, notify, load(offsetNr),
	}
	for _, nr := range harmless {
		program = append(program, unless(unix.BPF_JEQ, uint32(nr), 1), allow)
	}
	// A start asks the kernel hundreds of times what a map or a program is.
	program = append(program, unless(unix.BPF_JEQ, unix.SYS_BPF, uint8(2+2*len(bpfReads))), load(offsetArgs))
	for _, command := range bpfReads {
		program = append(program, unless(unix.BPF_JEQ, uint32(command), 1), allow)
	}
	program = append(program, notify)
	return append(program,
		// The launcher's own report: without it the tracer could not continue it.
		unless(unix.BPF_JEQ, unix.SYS_SENDMSG, 4), load(offsetArgs), unless(unix.BPF_JEQ, reportFD, 1), allow, notify,
		// Logs, and the launcher's last words.
		unless(unix.BPF_JEQ, unix.SYS_WRITE, 4), load(offsetArgs), unless(unix.BPF_JEQ, 2, 1), allow, notify,
		// An open that makes no file changes nothing.
		unless(unix.BPF_JEQ, unix.SYS_OPENAT, 4), load(offsetArgs+2*8), unless(unix.BPF_JSET, unix.O_CREAT, 1), notify, allow,
		notify,
	)
}

// filterBytes is the filter as the launcher reads it.
func filterBytes() []byte {
	bytes, _ := binary.Append(nil, binary.NativeEndian, filter()) // of a fixed size
	return bytes
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
