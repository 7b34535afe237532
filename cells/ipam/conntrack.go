package ipam

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Conntrack is the [Namer] of the connections that the kernel tracks in the agent's network namespace: an address is named
// while it began one, or answers one. A kernel that tracks none, or does not tell, names nobody: then the quarantine is
// all the rest that an address gets.
//
// Where nothing is tracked a question takes microseconds. Else the kernel goes through its whole table, which takes
// milliseconds: about 5 for each 262,144 buckets, once for IPv6 and twice for IPv4.
type Conntrack struct{}

// NewConntrack returns the one there is. It opens nothing before it is asked.
func NewConntrack() Conntrack { return Conntrack{} }

// conntrackPatience bounds the wait for the kernel.
const conntrackPatience = time.Second

// Names implements [Namer].
func (Conntrack) Names(addr netip.Addr) bool {
	if nothingTracked() {
		return false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	patience := unix.NsecToTimeval(int64(conntrackPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return false
	}
	if addr.Is6() {
		return tracks(fd, ctDump(1, addr), 1, addr)
	}
	return tracks(fd, ctFiltered(1, addr, ctTupleOrig), 1, addr) || tracks(fd, ctFiltered(2, addr, ctTupleReply), 2, addr)
}

// nothingTracked is true when that is certain.
func nothingTracked() bool {
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count") // of this network namespace
	return errors.Is(err, fs.ErrNotExist) || string(bytes.TrimSpace(count)) == "0"
}

// tracks tells whether the answer to a request has a connection whose packets of either direction come from the address.
func tracks(fd int, request []byte, seq uint32, addr netip.Addr) bool {
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false
	}
	found, buf := false, make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return found
		}
		match, done := ctRead(buf[:n], seq, addr)
		if found = found || match; done {
			return found
		}
	}
}
