package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
)

// The ways a call fails without an answer.
var (
	// errNoAgent: no process listens at the socket.
	errNoAgent = errors.New("no agent is there")
	// errTimeout: the deadline passed. The request may have been done, or be done yet.
	errTimeout = errors.New("the agent did not answer in time")
	// errCut: the connection ended before the end of the answer, for example because the agent died.
	errCut = errors.New("the connection to the agent ended in the middle of the call")
	// errAnswer: the answer is not from an agent.
	errAnswer = errors.New("the answer is not one of the agent")
)

// agentError is an error that the agent wants printed.
type agentError struct{ body []byte }

func (e *agentError) Error() string { return string(e.body) }

// ask carries the call to the agent and returns what to print: as an *agentError when it is an error. Any other error
// says that the agent did not carry it out: it is a *v1.Problem, or one of those above.
//
// It is HTTP/1.0 by hand (RFC 1945), one call a connection: net/http alone would make a process start twice as slowly.
// An answer ends with the connection, and never comes in chunks.
func (c *call) ask(deadline time.Time) ([]byte, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	netns, err := openNetNS(c.command, c.netns)
	if err != nil {
		return nil, err
	}
	if netns >= 0 {
		defer unix.Close(netns)
	}
	s, err := dial(c.config.Socket, deadline)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Socket, err)
	}
	defer s.close()
	head := "POST /v1/cni HTTP/1.0\r\nHost: porin\r\nConnection: close\r\nContent-Type: application/json\r\n" +
		v1.TimeoutHeader + ": " + max(time.Until(deadline), 1).String() + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	// An agent that refuses a request may answer and close the connection before it has read the whole request.
	if err := s.write(append([]byte(head), body...), netns); err != nil && !isCut(err) {
		return nil, fmt.Errorf("%s: %w", c.config.Socket, err)
	}
	answer, err := s.readAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Socket, err)
	}
	return parseAnswer(answer)
}

// openNetNS opens the container's network namespace, or returns -1 when the command needs none. The agent checks it.
func openNetNS(command, path string) (int, error) {
	if command != "ADD" && command != "CHECK" {
		return -1, nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &failure{
			Code: codeBadNetNS, Msg: fmt.Sprintf("open CNI_NETNS %.200q: %v", path, err),
			Details: "the container runtime must set it to the path of the container's network namespace",
		}
	}
	return fd, nil
}

// parseAnswer reads a whole response.
func parseAnswer(answer []byte) ([]byte, error) {
	head, body, whole := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !whole {
		return nil, errCut
	}
	first, headers, _ := strings.Cut(string(head), "\r\n")
	proto, rest, _ := strings.Cut(first, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || !strings.HasPrefix(proto, "HTTP/1.") {
		return nil, fmt.Errorf("%w: it begins with %.40q", errAnswer, first)
	}
	for line := range strings.SplitSeq(headers, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(name, "content-length") {
			continue
		}
		if length, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && length > len(body) {
			return nil, errCut
		} else if err != nil || length < len(body) {
			return nil, fmt.Errorf("%w: it has %d bytes, and should have %.20s", errAnswer, len(body), value)
		}
	}
	switch status {
	case 200:
		return body, nil
	case v1.CNIErrorStatus:
		return nil, &agentError{body}
	}
	problem := &v1.Problem{}
	if err := json.Unmarshal(body, problem); err != nil || problem.Code == "" {
		return nil, fmt.Errorf("%w: status %d and %.200q", errAnswer, status, body)
	}
	return nil, problem
}

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
	if err := s.retry(unix.SO_SNDTIMEO, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		s.close()
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			err = fmt.Errorf("%w: %w", errNoAgent, err)
		}
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
			return errTimeout
		}
		wait := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, timeout, &wait); err != nil {
			return err
		}
		if err := call(); !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) { // the latter is the timeout
			return err
		}
	}
}

// isCut reports whether the other side has closed the connection before it had read everything.
func isCut(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

// write sends data, with a file descriptor on its first byte unless that is -1.
func (s *socket) write(data []byte, descriptor int) error {
	var control []byte
	if descriptor >= 0 {
		control = unix.UnixRights(descriptor)
	}
	for len(data) > 0 {
		var n int
		err := s.retry(unix.SO_SNDTIMEO, func() (err error) {
			n, err = unix.SendmsgN(s.fd, data, control, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return err
		}
		data, control = data[n:], nil
	}
	return nil
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 20

// readAll reads until the agent closes the connection.
func (s *socket) readAll() ([]byte, error) {
	buf := make([]byte, 0, 4096)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		var n int
		err := s.retry(unix.SO_RCVTIMEO, func() (err error) {
			n, err = unix.Read(s.fd, buf[len(buf):cap(buf)])
			return err
		})
		switch {
		case isCut(err), err == nil && n == 0:
			return buf, nil
		case err != nil:
			return nil, err
		}
		if buf = buf[:len(buf)+n]; len(buf) > maxAnswer {
			return nil, fmt.Errorf("%w: it is larger than %d bytes", errAnswer, maxAnswer)
		}
	}
}
