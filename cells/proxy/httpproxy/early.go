package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// early is a connection to the server before the first request. It is opened when the client sends nothing for a while, as one does that waits for the server to
// speak: so that is noticed. The first request that is allowed is sent by it. Nothing that the server has said by then gets to the client.
type early struct {
	timer  *time.Timer   // opens it
	cancel func()        // ends the dial
	done   chan struct{} // closed when nobody reads from it any more

	mu    sync.Mutex // guards the fields below
	taken bool
	conn  net.Conn // nil unless the server has accepted, and has neither said nor closed anything
	spoke bool     // the server has said what is not HTTP
}

// dialEarly opens the connection when [Limits.ServerFirst] is over.
func (s *Session) dialEarly(ctx context.Context) {
	e := &early{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	e.cancel = cancel
	s.early = e
	e.timer = time.AfterFunc(s.Limits.ServerFirst, func() {
		defer close(e.done)
		if e.open(ctx, s) && e.hears() {
			s.serverSpoke()
		}
	})
}

// open dials, and reports whether the connection is to be read from. A failure is no matter: the first request dials again.
func (e *early) open(ctx context.Context, s *Session) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Dial)
	defer cancel()
	conn, err := s.Dial(ctx)
	if err != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn = conn
	return !e.taken
}

// hears reads until the connection is taken, or the server says something or closes it. It reports whether that is not HTTP.
func (e *early) hears() bool {
	var said [9]byte
	n, err := 0, error(nil)
	for err == nil && n < len(said) && mayBeginHTTP(said[:n]) {
		var got int
		got, err = e.conn.Read(said[n:])
		n += got
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > 0 || !e.taken {
		e.isOver(said[:n])
	}
	return e.spoke
}

// isOver closes the connection, on which the server has said this. It expects the lock.
func (e *early) isOver(said []byte) {
	e.spoke = !mayBeginHTTP(said)
	_ = e.conn.Close()
	e.conn = nil
}

// pending returns how much of what was not read is in b now, and whether there is anything, or the end of the stream.
func pending(conn net.Conn, b []byte) (n int, more bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, true
	}
	if controlErr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_PEEK|unix.MSG_DONTWAIT) }); controlErr != nil {
		return 0, true
	}
	return max(n, 0), !errors.Is(err, unix.EAGAIN)
}

// mayBeginHTTP reports whether b may begin what a server of HTTP says before a request: a response, as that it waits no longer (408), or the settings of HTTP/2.
func mayBeginHTTP(b []byte) bool {
	settings := [9]byte{3: 4} // a frame's length, type, flags, and stream
	if len(b) > 2 {
		settings[2] = b[2]
	}
	n := min(len(b), len(settings))
	return speaksHTTP(b) || bytes.Equal(b[:n], settings[:n])
}

// halt has the connection not be opened, if it was not yet.
func (e *early) halt() {
	if e.timer.Stop() {
		close(e.done)
	}
}

// take returns the connection, nil if there is none, and whether the server has said what is not HTTP. It waits for a dial that has begun.
func (e *early) take() (conn net.Conn, spoke bool) {
	defer e.cancel()
	e.halt()
	e.mu.Lock()
	e.taken = true
	if e.conn != nil {
		_ = e.conn.SetReadDeadline(time.Unix(1, 0))
	}
	e.mu.Unlock()
	<-e.done
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return nil, e.spoke
	}
	var said [9]byte
	if n, more := pending(e.conn, said[:]); more { // nobody has read it
		e.isOver(said[:n])
		return nil, e.spoke
	}
	conn, e.conn = e.conn, nil
	_ = conn.SetReadDeadline(time.Time{})
	return conn, false
}

// close closes what was not taken.
func (e *early) close() {
	e.cancel()
	if conn, _ := e.take(); conn != nil {
		_ = conn.Close()
	}
}

// serverSpoke has who waits for the first byte of the client stop that.
func (s *Session) serverSpoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && !s.ending {
		s.client.SetReadDeadline(time.Unix(1, 0))
	}
}

// hasSpoken reports whether the server has said what is not HTTP, before a request.
func (e *early) hasSpoken() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spoke
}
