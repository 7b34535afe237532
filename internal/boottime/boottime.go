// Package boottime reads the clock that all processes of a node share and that nobody sets: CLOCK_BOOTTIME (clock_gettime(2),
// Linux 2.6.39). It goes on while the machine sleeps, and begins anew with each boot.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the node booted.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail for a clock that is there
	return time.Duration(ts.Nano())
}
