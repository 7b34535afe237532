package established

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// From linux/inet_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21

	headerLen = 4  // of struct inet_diag_msg, before the ID: family, state, timer, retransmissions
	idLen     = 48 // struct inet_diag_sockid
)

// States of sockets: net/tcp_states.h.
const (
	synSent  = 2
	timeWait = 6
	closed   = 7
	listens  = 10
)

// socketID is a struct inet_diag_sockid: addresses, ports and the kernel's cookie, which no other socket ever has.
type socketID [idLen]byte

// socket is a socket of TCP.
type socket struct {
	family        uint8
	state         uint8
	id            socketID
	local, remote netip.AddrPort
}

// request is struct inet_diag_req_v2.
type request struct {
	family uint8
	states uint32
	id     socketID
}

func (r request) Len() int { return 8 + idLen }

func (r request) Serialize() []byte {
	b := binary.NativeEndian.AppendUint32([]byte{r.family, unix.IPPROTO_TCP, 0, 0}, r.states)
	return append(b, r.id[:]...)
}

// list returns the sockets of TCP in the network namespace of the thread, without those that are over.
func list() (all []socket, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		r := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
		r.AddData(request{family: family, states: ^uint32(1<<timeWait | 1<<closed)})
		messages, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		for _, m := range messages {
			if s, ok := decode(m); ok {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// decode reads a struct inet_diag_msg.
func decode(m []byte) (s socket, ok bool) {
	if len(m) < headerLen+idLen {
		return socket{}, false
	}
	s.family, s.state = m[0], m[1]
	copy(s.id[:], m[headerLen:])
	at := func(offset int) netip.Addr {
		if s.family == unix.AF_INET {
			return netip.AddrFrom4([4]byte(s.id[offset : offset+4]))
		}
		return netip.AddrFrom16([16]byte(s.id[offset : offset+16])).Unmap()
	}
	s.local = netip.AddrPortFrom(at(4), binary.BigEndian.Uint16(s.id[0:]))
	s.remote = netip.AddrPortFrom(at(20), binary.BigEndian.Uint16(s.id[2:]))
	return s, true
}

// errUnsupported is returned by a kernel without CONFIG_INET_DIAG_DESTROY.
var errUnsupported = errors.New("the kernel lacks CONFIG_INET_DIAG_DESTROY")

// destroy closes a socket of the network namespace of the thread. Its program gets an error, and its other end a reset. One that is gone is no error.
func (s socket) destroy() error {
	r := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
	r.AddData(request{family: s.family, id: s.id})
	_, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %w", errUnsupported, err)
	case errors.Is(err, unix.ENOENT):
		return nil
	}
	return err
}

// probe returns why open connections cannot be closed here. It asks to destroy a socket that nobody has.
func probe() error {
	r := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
	r.AddData(request{family: unix.AF_INET, states: 1 << closed})
	if _, err := r.Execute(unix.NETLINK_INET_DIAG, 0); err != nil {
		return fmt.Errorf("list sockets: %w", err)
	}
	return socket{family: unix.AF_INET}.destroy()
}

// listening has the ports at which connections are accepted.
func listening(all []socket) (ports []uint16) {
	for _, s := range all {
		if s.state == listens {
			ports = append(ports, s.local.Port())
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
