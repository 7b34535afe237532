package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrOverrun says that notifications were lost, because nobody read them fast enough. What they told must be read anew.
var ErrOverrun = errors.New("link notifications were lost")

// LinkEvent is a change of one interface.
type LinkEvent struct {
	Link
	Deleted bool
}

// LinkWatch hears of every change of an interface in one network namespace, from the time it was made. The kernel
// notifies the end of a link long before a call that deletes it returns.
type LinkWatch struct {
	file    *os.File
	raw     syscall.RawConn
	buf     []byte
	pending []byte // the rest of a datagram
}

// WatchLinks begins to watch the network namespace of the calling thread.
func WatchLinks() (*LinkWatch, error) {
	fd, err := socket(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "route-netlink") // it is non-blocking, so the runtime polls it, and Close wakes Next
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

// Next waits for the next change. It returns [ErrOverrun] when changes were lost, and goes on afterwards;
// os.ErrClosed after Close. One goroutine may call it at a time.
func (w *LinkWatch) Next() (LinkEvent, error) {
	for {
		for len(w.pending) >= headerLen {
			if event, ok, err := w.event(); ok || err != nil {
				return event, err
			}
		}
		if err := w.receive(); err != nil {
			return LinkEvent{}, err
		}
	}
}

// event takes one message off the datagram; not ok when it is none that matters.
func (w *LinkWatch) event() (event LinkEvent, ok bool, err error) {
	size := int(binary.NativeEndian.Uint32(w.pending))
	if size < headerLen || size > len(w.pending) {
		w.pending = nil
		return event, false, errMalformed
	}
	typ, body := binary.NativeEndian.Uint16(w.pending[4:]), w.pending[headerLen:size]
	w.pending = w.pending[min(align(size), len(w.pending)):]
	if typ != unix.RTM_NEWLINK && typ != unix.RTM_DELLINK || len(body) > 0 && body[0] != unix.AF_UNSPEC {
		return event, false, nil // a bridge tells of its ports with the same types in a family of its own
	}
	event.Link, err = parseLink(body)
	event.Deleted = typ == unix.RTM_DELLINK
	return event, err == nil, err
}

func (w *LinkWatch) receive() (err error) {
	var n int
	readErr := w.raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), w.buf, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case readErr != nil:
		return os.ErrClosed // without a deadline there is no other reason
	case errors.Is(err, unix.ENOBUFS):
		return ErrOverrun
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("watch links: %w", err)
	}
	w.pending = w.buf[:n]
	return nil
}
