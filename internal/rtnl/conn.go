package rtnl

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Conn is a route-netlink socket in one network namespace: the one of the thread that dialled, wherever its later
// users are. All methods may be called concurrently; exchanges take their turn.
type Conn struct {
	mu  sync.Mutex // guards the fields below, and a whole exchange
	fd  int        // -1 when closed
	seq uint32
	buf []byte // for answers
}

const (
	// maxBatch bounds the requests of one system call, so that their acknowledgements fit into the socket's default
	// receive buffer (208 KiB, each ack takes a page at the most).
	maxBatch = 40
	// maxAnswer is the size of the largest message that is read. The kernel fills its parts of a list up to it.
	maxAnswer = 32 << 10
)

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
	// Kernels that lack one of these (before 4.3, 4.12, 4.20) answer longer, say less, and list more than asked.
	for _, opt := range []int{unix.NETLINK_CAP_ACK, unix.NETLINK_EXT_ACK, unix.NETLINK_GET_STRICT_CHK} {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, opt, 1)
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
	fd := c.fd
	c.fd = -1
	return unix.Close(fd)
}

// Do sends all requests in one system call (one for every 40 of them) and waits for every answer. The kernel takes
// them in order and goes on after one that failed; later ones of the batch are done even so. The error is a *[Error],
// or [Errors] when several failed.
func (c *Conn) Do(requests ...Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs Errors
	for len(requests) > 0 {
		n := min(len(requests), maxBatch)
		failed, err := c.exchange(requests[:n])
		if err != nil {
			return fmt.Errorf("%s: %w", requests[0].What, err)
		}
		errs = append(errs, failed...)
		requests = requests[n:]
	}
	return errs.err()
}

// exchange does one batch. The Errors are of single requests; an error is of the socket.
func (c *Conn) exchange(requests []Request) (Errors, error) {
	var out message
	first := c.seq + 1
	for _, r := range requests {
		c.seq++
		out.frame(r.Type, r.Flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.seq, r.Body)
	}
	if err := c.send(out.bytes()); err != nil {
		return nil, err
	}
	in := newReplies(first, requests)
	for in.pending > 0 {
		datagram, err := c.receive()
		if err != nil {
			return nil, err
		}
		if err := in.take(datagram); err != nil {
			return nil, err
		}
	}
	return in.errors(), nil
}

func (c *Conn) send(datagram []byte) error {
	for {
		err := unix.Sendto(c.fd, datagram, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
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
