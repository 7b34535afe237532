package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

var errMalformed = errors.New("malformed netlink message")

// Request is one route-netlink message and what to do with its answer.
type Request struct {
	what   string // for errors: "get link porabc"
	typ    uint16 // RTM_...
	body   []byte // a struct ifinfomsg, then attributes
	answer func(body []byte) error
}

// Conn is a route-netlink socket in one network namespace: the one of the thread that dialled, wherever its later
// users are. All methods may be called concurrently; exchanges take their turn.
type Conn struct {
	mu  sync.Mutex // guards the fields below, and a whole exchange
	fd  int        // -1 when closed
	seq uint32
	buf []byte // for answers
}

// maxAnswer is the size of the largest message that is read. One link with all its attributes takes 2 KiB.
const maxAnswer = 32 << 10

// Dial opens a socket in the network namespace of the calling thread.
func Dial() (*Conn, error) {
	fd, err := socket(0)
	if err != nil {
		return nil, err
	}
	return &Conn{fd: fd, buf: make([]byte, maxAnswer)}, nil
}

func socket(flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("open a route-netlink socket: %w", err)
	}
	return fd, nil
}

// Close frees the socket. It waits for an exchange in progress; a later Do fails with EBADF. Twice is fine.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return nil
	}
	defer func() { c.fd = -1 }()
	return unix.Close(c.fd)
}

// Do sends the request and waits for its acknowledgement. The error names the request and wraps the kernel's errno.
func (c *Conn) Do(r Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.exchangeLocked(r); err != nil {
		return fmt.Errorf("%s: %w", r.what, err)
	}
	return nil
}

func (c *Conn) exchangeLocked(r Request) error {
	c.seq++
	var m message
	m.u32s(uint32(headerLen + len(r.body)))
	m.u16s(r.typ, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m.u32s(c.seq, 0)
	if err := unix.Sendto(c.fd, append(m.buf, r.body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		datagram, err := c.receive()
		if err != nil {
			return err
		}
		if done, err := r.take(datagram, c.seq); done || err != nil {
			return err
		}
	}
}

// receive returns the next datagram, valid until the next call.
func (c *Conn) receive() ([]byte, error) {
	for {
		// MSG_TRUNC makes the kernel tell the whole length of what did not fit.
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n > len(c.buf):
			return nil, fmt.Errorf("an answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		return c.buf[:n], nil
	}
}

// take reads one datagram. It is done with the acknowledgement. An answer to an abandoned request is
// skipped.
func (r Request) take(datagram []byte, seq uint32) (done bool, err error) {
	for len(datagram) > 0 {
		typ, answered, body, rest, err := cut(datagram)
		if datagram = rest; err != nil {
			return false, err
		}
		switch {
		case answered != seq:
		case typ == unix.NLMSG_ERROR: // a struct nlmsgerr: a negative errno, or 0
			if len(body) < 4 {
				return false, errMalformed
			}
			if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
				return true, unix.Errno(-code)
			}
			return true, nil
		case r.answer != nil:
			if err := r.answer(body); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}
