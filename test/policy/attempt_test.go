package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// verdict is what becomes of a connection: it is allowed, or dropped for one of the reasons of the drop counters.
type verdict string

const (
	allowed       verdict = "allowed"
	deniedEgress  verdict = "policy-egress"
	deniedIngress verdict = "policy-ingress"
)

// attempt is a client that connects to a server. Both are of this test, so that it sees what the server gets.
type attempt struct {
	*world
	from, to *end
	protocol string
	port     uint16         // of the server
	dialed   netip.AddrPort // the server's own address, or a Service's
	six      bool

	client, server int           // sockets
	before, now    [2]v1.Traffic // of the client's pod and the server's
	open           []int         // sockets to close
}

// outcome connects and sends bytes there and back. The verdict is another one when a policy's drop counter rises and
// the server has received nothing. Anything else is an error.
func (a *attempt) outcome() (verdict, error) {
	defer a.close()
	a.before = a.count()
	if err := a.openSockets(); err != nil {
		return "", err
	}
	err := a.exchange()
	if err == nil {
		return allowed, nil
	}
	denied, ok := errors.AsType[*dropped](err)
	switch {
	case !ok:
		return "", err
	case readable(a.server):
		return "", fmt.Errorf("%w, but something has arrived at the server", err)
	case a.now[1].ToPod.Packets != a.before[1].ToPod.Packets:
		return "", fmt.Errorf("%w, but the server's pod has received packets", err)
	}
	return denied.reason, nil
}

func (a *attempt) count() [2]v1.Traffic { return [2]v1.Traffic{a.traffic(a.from), a.traffic(a.to)} }

// dropped says that a drop counter has risen.
type dropped struct{ reason verdict }

func (d *dropped) Error() string { return "dropped: " + string(d.reason) }

// await waits until the socket is ready, or a policy has dropped something of either pod.
func (a *attempt) await(what string, fd int, event int16) error {
	for deadline := time.Now().Add(testutil.Patience); time.Now().Before(deadline); {
		ready, err := poll(fd, event, time.Millisecond)
		if err != nil || ready {
			return err
		}
		a.now = a.count()
		for i := range a.now {
			for _, reason := range []verdict{deniedEgress, deniedIngress} {
				if a.now[i].Drops[string(reason)] > a.before[i].Drops[string(reason)] {
					return &dropped{reason}
				}
			}
		}
	}
	return fmt.Errorf("%s: neither that nor a drop", what)
}

func (a *attempt) openSockets() (err error) {
	here, serving := netip.AddrPortFrom(a.from.addr(a.six), 0), netip.AddrPortFrom(a.to.addr(a.six), a.port)
	if a.server, err = a.socket(a.to, serving); err != nil {
		return fmt.Errorf("serve %s at %s: %w", a.protocol, serving, err)
	}
	if a.client, err = a.socket(a.from, here); err != nil {
		return fmt.Errorf("bind %s to %s: %w", a.protocol, here, err)
	}
	if !a.isStream() {
		return nil
	}
	return unix.Listen(a.server, 1)
}

var protocols = map[string]int{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

func (a *attempt) isStream() bool {
	return a.protocol == "tcp" || a.protocol == "sctp" && kernelHasSCTP()
}

// socket opens one in a namespace, and binds it. The test closes it.
func (a *attempt) socket(of *end, addr netip.AddrPort) (fd int, err error) {
	kind, family := unix.SOCK_RAW, unix.AF_INET
	switch {
	case a.isStream():
		kind = unix.SOCK_STREAM
	case a.protocol == "udp":
		kind = unix.SOCK_DGRAM
	}
	if a.six {
		family = unix.AF_INET6
	}
	err = of.Do(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocols[a.protocol])
		return err
	})
	if err != nil {
		return -1, err
	}
	a.open = append(a.open, fd)
	if kind == unix.SOCK_RAW {
		addr = netip.AddrPortFrom(addr.Addr(), 0)
	}
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, sockaddr(addr)))
}

func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}

// close resets connections, so that no packet of this attempt comes during the next one.
func (a *attempt) close() {
	for _, fd := range a.open {
		if a.isStream() {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		_ = unix.Close(fd)
	}
}

func (a *attempt) exchange() error {
	switch {
	case a.isStream():
		return a.streamExchange()
	case a.protocol == "udp":
		return a.datagramExchange([]byte("there"), []byte("back"), a.dialed)
	}
	// A packet with an INIT chunk, and one with an INIT ACK. A raw socket has no ports.
	const clientPort, initChunk, initAck = 40000, 1, 2
	return a.datagramExchange(sctpPacket(clientPort, a.port, initChunk), sctpPacket(a.port, clientPort, initAck), netip.AddrPortFrom(a.dialed.Addr(), 0))
}

// streamExchange connects, and sends a byte there and another one back.
func (a *attempt) streamExchange() error {
	if err := unix.Connect(a.client, sockaddr(a.dialed)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", err)
	}
	if err := a.await("connect", a.client, unix.POLLOUT); err != nil {
		return err
	}
	if code, err := unix.GetsockoptInt(a.client, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return fmt.Errorf("connect: %w", errors.Join(err, unix.Errno(code)))
	}
	if err := a.await("accept", a.server, unix.POLLIN); err != nil {
		return err
	}
	accepted, _, err := unix.Accept4(a.server, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	a.open = append(a.open, accepted)
	for _, way := range [][2]int{{a.client, accepted}, {accepted, a.client}} {
		if _, err := unix.Write(way[0], []byte("x")); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := a.await("read", way[1], unix.POLLIN); err != nil {
			return err
		}
		var got [2]byte
		if n, err := unix.Read(way[1], got[:]); err != nil || string(got[:n]) != "x" {
			return fmt.Errorf("read %q: %w", got[:n], err)
		}
	}
	return nil
}

// datagramExchange sends one datagram, or packet, there and another one back.
func (a *attempt) datagramExchange(there, back []byte, to netip.AddrPort) error {
	if err := unix.Sendto(a.client, there, 0, sockaddr(to)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	peer, err := a.receive(a.server, there)
	if err != nil {
		return err
	}
	if err := unix.Sendto(a.server, back, 0, peer); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	_, err = a.receive(a.client, back)
	return err
}

// receive wants the payload at the end of what comes: a raw socket gets the IP header as well.
func (a *attempt) receive(fd int, payload []byte) (from unix.Sockaddr, err error) {
	if err := a.await("receive", fd, unix.POLLIN); err != nil {
		return nil, err
	}
	buf := make([]byte, 256)
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err == nil && (n < len(payload) || string(buf[n-len(payload):n]) != string(payload)) {
		err = fmt.Errorf("received %q, want %q", buf[:n], payload)
	}
	return from, err
}

func sctpPacket(source, destination uint16, chunk byte) []byte {
	packet := make([]byte, 12+20) // with the fixed part of an INIT
	binary.BigEndian.PutUint16(packet, source)
	binary.BigEndian.PutUint16(packet[2:], destination)
	packet[12], packet[15] = chunk, 20
	return packet
}

// poll returns whether the socket is ready for the event, or has failed, which the next call says.
func poll(fd int, event int16, wait time.Duration) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: event}}, int(wait.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

func readable(fd int) bool {
	ready, err := poll(fd, unix.POLLIN, 0)
	return ready || err != nil
}

// kernelHasSCTP says whether there are sockets of SCTP. Without, raw sockets send its packets.
func kernelHasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
