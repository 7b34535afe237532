// Package nl holds what github.com/vishvananda/netlink leaves to its users.
package nl

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// maxDumps bounds how often Dump reads a list that keeps changing.
const maxDumps = 20

// Dump calls list until the kernel gave the whole list in one piece. The kernel interrupts a dump when its objects
// change meanwhile, and the library then returns a part of the list together with netlink.ErrDumpInterrupted.
//
// After 20 interrupted dumps Dump returns the last part and an error that wraps netlink.ErrDumpInterrupted. Entries of
// the part were there; missing entries may be there all the same. (Handle.RouteList and Handle.RouteListFiltered
// return no part at all.) Every other error of list is returned as it is.
func Dump[T any](list func() ([]T, error)) (items []T, err error) {
	for range maxDumps {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return items, err
		}
	}
	return items, fmt.Errorf("%d dumps were interrupted: %w", maxDumps, err)
}
