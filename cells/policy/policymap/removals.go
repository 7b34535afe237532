package policymap

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// removals are entries to which nothing points any more. A program that has read the pointer before may be about to
// need them.
type removals struct {
	list []func() error
	safe atomic.Bool // no program has a pointer from before
}

// membarrierGlobal returns when every program that ran at the call has ended (membarrier(2), MEMBARRIER_CMD_GLOBAL).
const membarrierGlobal = 1

// longRun is longer than any program runs, for a kernel that refuses the call, as one with nohz_full does.
const longRun = time.Second

// whenSafe finds out when the entries may be removed, and tells.
func (r *removals) whenSafe(tell chan<- struct{}) {
	go func() {
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
			time.Sleep(longRun)
		}
		r.safe.Store(true)
		select {
		case tell <- struct{}{}:
		default:
		}
	}()
}

// pending are removals in the order in which they were asked for.
type pending []*removals

// run removes entries that are certainly unused, and returns the rest.
func (p pending) run() (left pending, err error) {
	for i, r := range p {
		if !r.safe.Load() {
			return p[i:], nil
		}
		for _, remove := range r.list {
			if err := remove(); err != nil {
				return p[i:], err
			}
		}
	}
	return nil, nil
}
