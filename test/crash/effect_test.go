package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// effect is a system call that changes something outside of its process.
type effect struct {
	call string // its name, or what it asks of the kernel: "RTM_NEWLINK", "bpf MAP_UPDATE_ELEM"
	on   string // file, or "" for none
	talk bool   // it sends a message, and changes nothing by itself
}

func (e effect) String() string { return strings.TrimSpace(e.call + " " + e.on) }

// random is the part of a file's name that is another one each time.
var random = regexp.MustCompile(`^[0-9a-f]{16,}|^\d{6,}`)

// kind is the effect less what is another one each time.
func (e effect) kind() string {
	if e.on == "" {
		return e.call
	}
	return e.call + " " + random.ReplaceAllString(filepath.Base(e.on), "*")
}

// effectOf says what a call would do, and whether it is an effect at all.
func (p process) effectOf(n notification) (effect, bool) {
	c, known := named[int(n.nr)]
	switch {
	case !known:
		return effect{call: fmt.Sprintf("system call %d", n.nr)}, true
	case n.nr == unix.SYS_BPF:
		return bpfEffect(n.args[0])
	case c.fd:
		return p.fileEffect(c, n)
	case c.path > 0:
		return p.pathEffect(c, n)
	}
	return effect{call: c.name}, true
}

// pathEffect leaves out an open that would make the file if it were not there.
func (p process) pathEffect(c call, n notification) (effect, bool) {
	e := effect{call: c.name, on: p.text(n.args[c.path])}
	if n.nr == unix.SYS_OPENAT && n.args[2]&unix.O_TRUNC == 0 {
		_, err := os.Lstat(e.on)
		return e, err != nil
	}
	return e, true
}

// nsio is the type of the ioctl requests that ask about a namespace (linux/nsfs.h).
const nsio = 0xb7

// fileEffect leaves out what stays in the process, and logs.
func (p process) fileEffect(c call, n notification) (effect, bool) {
	file := p.file(n.args[0])
	switch {
	case strings.HasPrefix(file, "socket:"):
		return p.socketEffect(c, n)
	case strings.HasPrefix(file, "pipe:") && n.args[0] == 1:
		return effect{call: "answer to the runtime", talk: true}, true
	case n.nr == unix.SYS_IOCTL && n.args[1]>>8&0xff == nsio:
		return effect{}, false
	case strings.HasPrefix(file, "pipe:"), strings.HasPrefix(file, "anon_inode:"), n.args[0] == 2:
		return effect{}, false
	}
	return effect{call: c.name, on: file}, true
}

func (p process) socketEffect(c call, n notification) (effect, bool) {
	switch domain := p.domain(n.args[0]); {
	case domain == unix.AF_NETLINK && n.nr == unix.SYS_BIND:
		return effect{}, false
	case domain == unix.AF_NETLINK:
		return netlinkEffect(p.payload(n))
	case domain == unix.AF_UNIX && n.nr == unix.SYS_BIND:
		return effect{call: "bind", on: unixPath(p.read(n.args[1], int(min(n.args[2], 110))))}, true
	case domain == unix.AF_UNIX:
		return effect{call: "message on a Unix socket", talk: true}, true
	}
	return effect{call: c.name, on: "a socket"}, true
}

// unixPath is the path in a struct sockaddr_un.
func unixPath(addr []byte) string {
	path, _, _ := strings.Cut(string(addr[min(2, len(addr)):]), "\x00")
	return path
}
