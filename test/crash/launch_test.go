package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// envLaunch names the program that the launcher becomes.
const envLaunch = "PORIN_CRASH_LAUNCH"

// launcher builds the program in the folder launch, and returns a path to it that lasts as long as this process. It is
// no test binary: those take long to start, above all with the race detector.
var launcher = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "launch")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "launch")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./launch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the launcher: %w\n%s", err, out)
	}
	fd, err := unix.Open(program, unix.O_RDONLY|unix.O_CLOEXEC, 0) // no file has it for its own: it stays open
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), err
})

// receive is the other side of the launcher: the process under the filter, and the listener.
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
