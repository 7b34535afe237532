package ipam

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// never is when an address was released that was not in use yet. Other such times are by the allocator's own clock, which
// nobody sets.
const never = time.Duration(math.MinInt64)

// bootTime is the time since the node booted, suspended or not.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
