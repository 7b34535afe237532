package agent

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Client calls the agent at a socket.
type Client struct{ Socket string }

// The largest answers that are read: about one endpoint, and about all of a node.
const (
	maxHead   = 16 << 10
	maxAnswer = 1 << 20
	maxList   = 64 << 20
)

// call makes one request and returns the body of its answer. A status of 300 and above is a *[v1.Problem].
func (c Client) call(deadline time.Time, method, path string, body []byte, limit int) ([]byte, error) {
	conn, err := c.Dial(deadline)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.call(method, path, body, limit, func() {})
}

// Conn is a connection for one call.
type Conn struct {
	client Client
	socket *socket
}

// Dial connects. The agent takes the connection in while its caller prepares the call.
func (c Client) Dial(deadline time.Time) (*Conn, error) {
	s, err := dial(c.Socket, deadline)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Socket, err)
	}
	return &Conn{c, s}, nil
}

// Close lets go of the connection. An agent that is at work for it gives up.
func (c *Conn) Close() { c.socket.close() }

// call makes the connection's one request, runs meanwhile while the agent is at work, and returns the answer's body.
func (c *Conn) call(method, path string, body []byte, limit int, meanwhile func()) ([]byte, error) {
	answer, err := c.exchange(request(method, path, body, time.Until(c.socket.deadline)), limit, meanwhile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.client.Socket, err)
	}
	if answer.status < 300 {
		return answer.body, nil
	}
	return nil, problem(answer)
}

func request(method, path string, body []byte, timeout time.Duration) []byte {
	text := method + " " + path + " HTTP/1.0\r\nHost: porin\r\n" + v1.TimeoutHeader + ": " + max(timeout, 1).String() + "\r\n"
	if body != nil {
		text += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	return append([]byte(text+"\r\n"), body...)
}

func (c *Conn) exchange(request []byte, limit int, meanwhile func()) (answer, error) {
	if err := c.socket.write(request); err != nil {
		return answer{}, err
	}
	meanwhile()
	var in reader
	for buf := make([]byte, 4096); ; {
		n, err := c.socket.read(buf)
		if err != nil {
			return answer{}, err
		}
		done, err := in.take(buf[:n], limit)
		if done || err != nil {
			return in.answer, err
		}
		if n == len(buf) {
			buf = make([]byte, min(2*len(buf), 1<<20))
		}
	}
}

// answer is a response as far as it matters.
type answer struct {
	status int
	body   []byte
}

// reader takes a response in, piece by piece.
type reader struct {
	answer
	head   []byte // until it is whole
	inBody bool
	length int // of the body; -1 until the connection is closed
}

// ErrAnswer is wrapped when something answers, but not as the agent does. What was asked may have been done.
var ErrAnswer = errors.New("the answer is not HTTP as the agent speaks it")

// take takes the next piece, none at the end, and tells when the answer is whole.
func (r *reader) take(piece []byte, limit int) (done bool, err error) {
	end := len(piece) == 0
	if !r.inBody {
		r.head = append(r.head, piece...)
		head, rest, ok := bytes.Cut(r.head, []byte("\r\n\r\n"))
		switch {
		case !ok && end:
			return false, fmt.Errorf("%w: the connection was closed", ErrUnreachable)
		case !ok && len(r.head) > maxHead:
			return false, fmt.Errorf("%w: its head is larger than %d bytes", ErrAnswer, maxHead)
		case !ok:
			return false, nil
		}
		if err := r.parseHead(string(head)); err != nil {
			return false, err
		}
		r.inBody, piece = true, rest
	}
	r.body = append(r.body, piece...)
	switch {
	case max(len(r.body), r.length) > limit:
		return false, fmt.Errorf("%w: it is larger than %d bytes", ErrAnswer, limit)
	case r.length >= 0 && len(r.body) >= r.length:
		r.body = r.body[:r.length]
		return true, nil
	case end && r.length >= 0:
		return false, fmt.Errorf("%w: the connection was closed within an answer", ErrUnreachable)
	}
	return end, nil
}

func (r *reader) parseHead(head string) (err error) {
	first, headers, _ := strings.Cut(head, "\r\n")
	proto, rest, _ := strings.Cut(first, " ")
	code, _, _ := strings.Cut(rest, " ")
	if r.status, err = strconv.Atoi(code); err != nil || r.status < 200 || r.status > 599 || !strings.HasPrefix(proto, "HTTP/1.") {
		return fmt.Errorf("%w: it begins with %.40q", ErrAnswer, first)
	}
	r.length = -1
	for line := range strings.SplitSeq(headers, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil || r.length >= 0 && r.length != int(n) {
				return fmt.Errorf("%w: content-length %.40q", ErrAnswer, value)
			}
			r.length = int(n)
		case "transfer-encoding":
			return fmt.Errorf("%w: transfer-encoding %.40q in an answer to HTTP/1.0", ErrAnswer, value)
		}
	}
	return nil
}
