package ipam

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// conntrackPatience bounds the wait for each part of the kernel's answer.
const conntrackPatience = time.Second

// fewAddresses is how many are asked about one by one.
const fewAddresses = 2

// search is one question to the kernel. It reads the answer piece by piece, however long that is.
type search struct {
	fd            int
	seq           uint32
	wanted, found map[netip.Addr]bool
}

func openConntrack() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	patience := unix.NsecToTimeval(int64(conntrackPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func newSearch(fd int, addrs []netip.Addr) *search {
	s := &search{fd: fd, wanted: map[netip.Addr]bool{}, found: map[netip.Addr]bool{}}
	for _, addr := range addrs {
		s.wanted[addr] = true
	}
	return s
}

// run asks in the way that is the cheaper one.
func (s *search) run(ctx context.Context) {
	family, few := s.family(), len(s.wanted) <= fewAddresses
	if family != unix.AF_INET || !few {
		s.ask(ctx, ctDump(s.next(), family))
		return
	}
	for addr := range s.wanted {
		for _, direction := range []uint16{ctTupleOrig, ctTupleReply} {
			s.ask(ctx, ctFiltered(s.next(), addr, direction))
		}
	}
}

// family is the one of all that is wanted, or both.
func (s *search) family() byte {
	families := map[bool]bool{}
	for addr := range s.wanted {
		families[addr.Is4()] = true
	}
	switch {
	case len(families) > 1:
		return unix.AF_UNSPEC
	case families[true]:
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (s *search) next() uint32 {
	s.seq++
	return s.seq
}

// ask ends early when everything is found.
func (s *search) ask(ctx context.Context, request []byte) {
	if err := unix.Sendto(s.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return
	}
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil && len(s.found) < len(s.wanted) {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ctRead(buf[:n], s.seq, s.see) {
			return
		}
	}
}

func (s *search) see(from netip.Addr) {
	if s.wanted[from] {
		s.found[from] = true
	}
}
