package endpointmanager

import (
	"time"

	"golang.org/x/sys/unix"
)

// wallTime is the time for people: a value that is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }

// bootTime is the time since the node booted, suspended or not: the clock that the plugin and the agent share.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// since is when a caller began, as it says, but never in the future: nothing could come after that. A caller that does
// not say began now.
func (m *manager) since(began time.Duration) time.Duration {
	if now := m.boot(); began <= 0 || began > now {
		return now
	}
	return began
}
