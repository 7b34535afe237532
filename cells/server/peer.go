package server

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a Unix socket.
type peer struct {
	pid      int
	uid, gid uint32
	groups   []uint32 // supplementary
}

// peerOf reads the other end's credentials. For a connection that was made from here they are those of the process
// that listens.
func peerOf(conn net.Conn) (peer, error) {
	var p peer
	err := onDescriptor(conn, func(fd int) (err error) {
		p, err = peerOfFD(fd)
		return err
	})
	return p, err
}

// onDescriptor calls f with the socket's file descriptor, which is valid during the call.
func onDescriptor(conn net.Conn, f func(fd int) error) (err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}

func peerOfFD(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return peer{}, fmt.Errorf("SO_PEERGROUPS: %w", err)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13), which x/sys/unix has no function for. The kernel answers ERANGE and
// the size it wants when the buffer is too small.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errors.Is(errno, unix.ERANGE) && int(size/4) > len(groups):
			groups = make([]uint32, size/4)
		default:
			return nil, errno
		}
	}
}
