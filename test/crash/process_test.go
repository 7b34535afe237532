package crash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a look into a process whose system call waits.
type process struct{ pid, pidfd int }

func openProcess(pid int) (process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return process{pid, fd}, err
}

// effectOfAny is effectOf for a call of this process, or of a process that it has started.
func (p process) effectOfAny(n notification) (effect, bool) {
	if p.has(n.tid) {
		return p.effectOf(n)
	}
	child, err := openProcess(processOf(n.tid))
	if err != nil {
		return effect{}, false // it has ended meanwhile
	}
	defer child.close()
	return child.effectOf(n)
}

// has says whether a thread is of this process.
func (p process) has(tid uint32) bool { return unix.Tgkill(p.pid, int(tid), 0) == nil }

// processOf is the process that a thread is of.
func processOf(tid uint32) (pid int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	_, _ = fmt.Sscan(rest, &pid)
	return pid
}

func (p process) close() { _ = unix.Close(p.pidfd) }

// file is what a file descriptor is of, as /proc has it: a path, "socket:[1]", "pipe:[2]", "anon_inode:[eventfd]".
func (p process) file(fd uint64) string {
	target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.pid, int32(fd)))
	return target
}

// domain is the family of a socket, AF_UNSPEC when it cannot be told.
func (p process) domain(fd uint64) int {
	copied, err := unix.PidfdGetfd(p.pidfd, int(int32(fd)), 0)
	if err != nil {
		return unix.AF_UNSPEC
	}
	defer unix.Close(copied)
	domain, _ := unix.GetsockoptInt(copied, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return domain
}

// read returns up to n bytes of its memory.
func (p process) read(addr uint64, n int) []byte {
	buf := make([]byte, n)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(p.pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}, 0)
	if err != nil {
		return nil
	}
	return buf[:got]
}

// text reads a string that ends with a zero. It does not read over the end of a page, behind which may be nothing.
func (p process) text(addr uint64) string {
	const page = 4096
	var all []byte
	for len(all) < page {
		part := p.read(addr, page-int(addr%page))
		end := bytes.IndexByte(part, 0)
		if end >= 0 || len(part) == 0 {
			return string(append(all, part[:max(end, 0)]...))
		}
		all, addr = append(all, part...), addr+uint64(len(part))
	}
	return string(all)
}

// payload is what sendto or sendmsg is about to send, of the latter the first part.
func (p process) payload(n notification) []byte {
	const enough = 64 << 10
	addr, size := n.args[1], n.args[2]
	if n.nr == unix.SYS_SENDMSG {
		header := p.read(n.args[1], 32) // struct msghdr: name, its length, parts, their number
		if len(header) < 32 {
			return nil
		}
		part := p.read(binary.NativeEndian.Uint64(header[16:]), 16)
		if len(part) < 16 {
			return nil
		}
		addr, size = binary.NativeEndian.Uint64(part), binary.NativeEndian.Uint64(part[8:])
	}
	if size == 0 {
		return nil
	}
	return p.read(addr, int(min(size, enough)))
}
