package agent

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The ways a call fails without an answer. Both are wrapped in what was being done.
var (
	// ErrUnreachable: nobody listens, or the connection broke. What was asked may have been done.
	ErrUnreachable = errors.New("the agent does not answer")
	// ErrTimeout: the deadline passed. What was asked may have been done, or be done yet.
	ErrTimeout = errors.New("the agent did not answer in time")
)

// socket is a connection that gives up at a deadline.
type socket struct {
	fd       int
	deadline time.Time
}

func dial(path string, deadline time.Time) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	s := &socket{fd: fd, deadline: deadline}
	err = s.retry(unix.SO_SNDTIMEO, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// retry runs a blocking system call with what is left of the time as its timeout.
func (s *socket) retry(timeout int, call func() error) error {
	for {
		left := time.Until(s.deadline)
		if left < time.Microsecond {
			return ErrTimeout
		}
		wait := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, timeout, &wait); err != nil {
			return err
		}
		switch err := call(); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // the latter is the timeout
		default:
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
}

func (s *socket) write(data []byte) error {
	for len(data) > 0 {
		var n int
		err := s.retry(unix.SO_SNDTIMEO, func() (err error) {
			n, err = unix.SendmsgN(s.fd, data, nil, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// read returns 0 at the end.
func (s *socket) read(buf []byte) (n int, err error) {
	err = s.retry(unix.SO_RCVTIMEO, func() (err error) {
		n, err = unix.Read(s.fd, buf)
		return err
	})
	return max(n, 0), err
}
