// Package boottime reads the clock that all processes of a node share and that cannot be set: CLOCK_BOOTTIME
// (clock_gettime(2), Linux 2.6.39). It goes on while the machine sleeps, and starts from zero with each boot.
package boottime

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now is the time since the node booted.
func Now() time.Duration {
	var ts unix.Timespec
	// It cannot fail for a clock that is there, and does not block, so the scheduler need not hear of it: 180 ns, and not
	// 245.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// ID names the boot: a UUID that the kernel makes at each one (random(4)).
func ID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot's ID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
