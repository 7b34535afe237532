package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the node booted, suspended or not. A lease of a node that slept is over when it wakes up.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
