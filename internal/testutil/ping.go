package testutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The ICMP types that [Ping] sends and waits for.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// Ping sends ICMP echo requests from the namespace to the address, one every 100 ms, until one is answered or the
// time is over.
func Ping(from *Namespace, to netip.Addr, timeout time.Duration) error {
	var fd int
	err := from.Do(func() (err error) {
		family, proto := unix.AF_INET, unix.IPPROTO_ICMP
		if to.Is6() {
			family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
		}
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		return err
	})
	if err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	p := pinger{fd: fd, to: to, id: uint16(os.Getpid())}
	for deadline := time.Now().Add(timeout); ; {
		err := p.once()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ping %s: %w", to, err)
		}
	}
}

type pinger struct {
	fd      int
	to      netip.Addr
	id, seq uint16
}

var errNoReply = errors.New("no reply")

// once sends one request and waits for the answer to it or to an earlier one.
func (p *pinger) once() error {
	p.seq++
	if err := unix.Sendto(p.fd, p.request(), 0, sockaddr(p.to)); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for range 1000 { // other packets than ours may come, but not without end
		n, _, err := unix.Recvfrom(p.fd, buf, 0)
		if err != nil {
			return errNoReply
		}
		if p.isReply(buf[:n]) {
			return nil
		}
	}
	return errNoReply
}

func (p *pinger) request() []byte {
	msg := []byte{echoRequest4, 0, 0, 0}
	if p.to.Is6() {
		msg[0] = echoRequest6
	}
	msg = binary.BigEndian.AppendUint16(msg, p.id)
	msg = binary.BigEndian.AppendUint16(msg, p.seq)
	msg = append(msg, "porin...porin...porin..."...)
	if p.to.Is4() { // the kernel does it for ICMPv6
		binary.BigEndian.PutUint16(msg[2:], Checksum(msg))
	}
	return msg
}

func (p *pinger) isReply(packet []byte) bool {
	want := byte(echoReply6)
	if p.to.Is4() { // with the IP header
		if len(packet) < 20 || len(packet) < int(packet[0]&15)*4 {
			return false
		}
		want, packet = echoReply4, packet[packet[0]&15*4:]
	}
	return len(packet) >= 8 && packet[0] == want && binary.BigEndian.Uint16(packet[4:]) == p.id
}

// Checksum returns the Internet checksum (RFC 1071) of an even number of bytes.
func Checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum + sum>>16)
}

func sockaddr(addr netip.Addr) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4()}
	}
	return &unix.SockaddrInet6{Addr: addr.As16()}
}
