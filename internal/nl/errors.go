package nl

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IsNoLink reports whether the kernel answered that there is no such interface.
func IsNoLink(err error) bool {
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	return absent
}

// IgnoreAbsent takes the kernel's answer that a single thing is not there for a success. For a route, EACCES and EINVAL
// mean that one leads nowhere; for filters, EINVAL means that the link has no qdisc for them.
func IgnoreAbsent(err error) error {
	absent := []error{unix.ENOENT, unix.ENODEV, unix.ESRCH, unix.EINVAL, unix.EACCES, unix.ENETUNREACH, unix.EHOSTUNREACH}
	if slices.ContainsFunc(absent, func(errno error) bool { return errors.Is(err, errno) }) {
		return nil
	}
	return err
}

// IgnoreInterrupted takes a list that changed while it was read for a list.
func IgnoreInterrupted(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}
