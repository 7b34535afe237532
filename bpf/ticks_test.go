package bpf_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// ticks is the clock of connections.
func ticks(t testing.TB) uint32 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		t.Fatal(err)
	}
	return uint32(now.Nano() / int64(abi.ConnectionTick))
}
