package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrOverrun says that notifications were lost, because they were not read fast enough. Their content must be read
// again.
var ErrOverrun = errors.New("link notifications were lost")

// LinkWatch hears of the end of every interface in one network namespace, from the time it was made. The kernel
// notifies it long before a call that deletes the interface returns.
type LinkWatch struct {
	file *os.File
	raw  syscall.RawConn
	buf  []byte
}

// WatchLinks begins to watch the network namespace of the calling thread.
func WatchLinks() (*LinkWatch, error) {
	fd, err := socket(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "route-netlink") // it is non-blocking, so the runtime polls it, and Close wakes Next
	// Unheard, the changes of links that stay cost nothing. A kernel that takes no filter sends them, too.
	_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyEnds())
	// A burst of many deletions (one per pod of a drained node) must fit; without CAP_NET_ADMIN the default stays.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("watch links: %w", err)
	}
	raw, err := file.SyscallConn()
	return &LinkWatch{file: file, raw: raw, buf: make([]byte, maxAnswer)}, err
}

// Close ends the watch and wakes Next.
func (w *LinkWatch) Close() error { return w.file.Close() }

// onlyEnds is a filter for the socket that passes a datagram that begins with RTM_DELLINK. Notifications come one in a
// datagram. The kernel's instruction loads in network order, the type in the header is in the machine's.
func onlyEnds() *unix.SockFprog {
	var native [2]byte
	binary.NativeEndian.PutUint16(native[:], unix.RTM_DELLINK)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // nlmsg_type
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(native[:])), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}

// Next waits for the next end of an interface. It returns [ErrOverrun] when some were lost, and goes on afterwards;
// os.ErrClosed after Close. One goroutine may call it at a time.
func (w *LinkWatch) Next() (index int, err error) {
	for {
		n, err := w.receive()
		if err != nil {
			return 0, err
		}
		typ, _, body, _, err := cut(w.buf[:n])
		if err != nil {
			return 0, err
		}
		if typ == unix.RTM_DELLINK && len(body) > 0 && body[0] == unix.AF_UNSPEC { // a bridge reports its ports in a family of its own
			link, err := parseLink(body)
			return link.Index, err
		}
	}
}

func (w *LinkWatch) receive() (n int, err error) {
	readErr := w.raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), w.buf, 0) // which does not block, so no signal interrupts it
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case readErr != nil:
		return 0, os.ErrClosed // without a deadline there is no other reason
	case errors.Is(err, unix.ENOBUFS):
		return 0, ErrOverrun
	case err != nil:
		return 0, fmt.Errorf("watch links: %w", err)
	}
	return n, nil
}
