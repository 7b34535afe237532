package redirect

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// queueErrors has the socket keep ICMP errors with who has sent them (ip(7), IP_RECVERR).
func queueErrors(fd, family int) error {
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if family == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, 1))
}

// maxErrors bounds what is read of them at a time.
const maxErrors = 64

// readErrors reads the errors of a socket that is connected to a server. It returns ECONNREFUSED when the server itself
// has said that the port is closed, and EAGAIN otherwise: other senders may forge it, such as a pod that guesses ports.
func readErrors(fd int, server netip.Addr) error {
	var control [256]byte
	refused := false
	for range maxErrors {
		_, n, _, _, err := unix.Recvmsg(fd, nil, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			refused = refused || isRefusal(m, server)
		}
	}
	if refused {
		return unix.ECONNREFUSED
	}
	return unix.EAGAIN
}

// isRefusal reads a struct sock_extended_err, behind which is the address of who has sent the error.
func isRefusal(m unix.SocketControlMessage, server netip.Addr) bool {
	const size = 16
	isError := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR || m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
	if !isError || len(m.Data) < size+2 || syscall.Errno(binary.NativeEndian.Uint32(m.Data)) != unix.ECONNREFUSED {
		return false
	}
	offender, ok := offenderOf(m.Data[size:])
	return ok && offender == server
}

// offenderOf reads a struct sockaddr_in or sockaddr_in6.
func offenderOf(b []byte) (netip.Addr, bool) {
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET && len(b) >= unix.SizeofSockaddrInet4:
		return netip.AddrFrom4([4]byte(b[4:8])), true
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap(), true
	}
	return netip.Addr{}, false
}
