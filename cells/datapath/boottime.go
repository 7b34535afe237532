package datapath

import (
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// readOnlyPin opens a pin for reading alone, which needs no right to write.
var readOnlyPin = &ebpf.LoadPinOptions{ReadOnly: true}

// bootTime is the zero of the clock that the kernel dates programs by.
func bootTime() time.Time {
	var sinceBoot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot) // cannot fail for this clock
	return time.Now().Add(-time.Duration(sinceBoot.Nano()))
}
