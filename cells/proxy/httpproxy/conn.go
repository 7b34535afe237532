package httpproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// bufferSize is that of a connection's buffer while something is in it; it grows for a head that is longer.
const bufferSize = 16 << 10

type buffer struct{ bytes []byte }

var buffers = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, bufferSize)} }}

func (b *buffer) release() {
	if len(b.bytes) == bufferSize {
		buffers.Put(b)
	}
}

var errBufferFull = errors.New("the buffer is full")

// conn is one of the two connections, with what was read from it and not used yet. It holds a buffer only while there is something in it.
type conn struct {
	net.Conn
	tcp      *net.TCPConn // nil for another kind, which tests have
	raw      syscall.RawConn
	progress *atomic.Uint32

	buf  *buffer // nil while nothing is in it
	r, w int     // what is in it

	// Arguments and results of the calls on the socket; they are here so that no call needs a closure of its own.
	read      func(fd uintptr) bool
	got       int
	err       error
	available func(fd uintptr)
}

func newConn(c net.Conn, progress *atomic.Uint32) *conn {
	n := &conn{Conn: c, progress: progress}
	n.read = n.tryRead
	n.available = n.askAvailable
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			n.tcp, n.raw = tcp, raw
		}
	}
	return n
}

// data is what was read and not used yet. It is valid until the next call of fill or discard.
func (c *conn) data() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf.bytes[c.r:c.w]
}

// discard drops the first n bytes of data.
func (c *conn) discard(n int) {
	if c.r += n; c.r == c.w && c.buf != nil {
		c.buf.release()
		c.buf, c.r, c.w = nil, 0, 0
	}
}

// fill waits for data and reads it behind what is there. The buffer grows to limit at most.
func (c *conn) fill(limit int) error {
	if c.buf != nil && c.w == len(c.buf.bytes) {
		if err := c.makeRoom(limit); err != nil {
			return err
		}
	}
	if c.raw == nil {
		if c.buf == nil {
			c.buf = buffers.Get().(*buffer)
		}
		c.got, c.err = c.Conn.Read(c.buf.bytes[c.w:])
		if c.got <= 0 {
			c.discard(0)
		}
	} else if err := c.raw.Read(c.read); err != nil {
		return err
	}
	if c.got > 0 {
		c.w += c.got
		c.progress.Add(1)
		return nil
	}
	if c.err == nil {
		return io.EOF
	}
	return c.err
}

func (c *conn) makeRoom(limit int) error {
	if c.r > 0 {
		c.w = copy(c.buf.bytes, c.buf.bytes[c.r:c.w])
		c.r = 0
		return nil
	}
	if c.w >= limit {
		return errBufferFull
	}
	larger := &buffer{bytes: make([]byte, min(4*c.w, max(limit, c.w+1)))}
	copy(larger.bytes, c.buf.bytes[:c.w])
	c.buf.release()
	c.buf = larger
	return nil
}

// tryRead reads without waiting, and takes a buffer only for that time. It reports whether the call is over.
func (c *conn) tryRead(fd uintptr) bool {
	buf := c.buf
	if buf == nil {
		buf = buffers.Get().(*buffer)
	}
	var err error
	for {
		if c.got, err = syscall.Read(int(fd), buf.bytes[c.w:]); err != syscall.EINTR {
			break
		}
	}
	switch {
	case c.got > 0:
		c.buf, c.err = buf, nil
		return true
	case c.buf == nil:
		buf.release()
	}
	if err == syscall.EAGAIN {
		return false
	}
	c.err = os.NewSyscallError("read", err)
	return true
}

// waiting returns how many bytes the kernel holds for us.
func (c *conn) waiting() int {
	if err := c.raw.Control(c.available); err != nil || c.err != nil {
		return 0
	}
	return c.got
}

func (c *conn) askAvailable(fd uintptr) { c.got, c.err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }

// closeWrite ends our stream, and lets the peer's go on.
func (c *conn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() // if the connection is gone, the next read says so
		return
	}
	c.Close()
}

// reset closes the connection in a way that the peer cannot take for the end of a stream.
func (c *conn) reset() {
	if c.tcp != nil {
		c.tcp.SetLinger(0)
	}
	c.Close()
}

// writer gathers what is written to a connection, so that a head and the beginning of its body are one call. After an error it returns the
// same one from every call.
type writer struct {
	to  *conn
	out *buffer // nil while nothing is gathered
	n   int
	err error
}

// direct is the size from which bytes are written without being copied.
const direct = 4 << 10

func (w *writer) write(b []byte) error {
	if w.out == nil && len(b) >= direct {
		return w.send(b)
	}
	for len(b) > 0 {
		n := copy(w.room(), b)
		w.n += n
		b = b[n:]
	}
	return w.err
}

func (w *writer) writeText(text string) error {
	for len(text) > 0 {
		n := copy(w.room(), text)
		w.n += n
		text = text[n:]
	}
	return w.err
}

// room returns where to copy to. It is not empty.
func (w *writer) room() []byte {
	if w.out != nil && w.n == len(w.out.bytes) {
		w.flush()
	}
	if w.out == nil {
		w.out = buffers.Get().(*buffer)
	}
	return w.out.bytes[w.n:]
}

func (w *writer) flush() error {
	if w.out == nil {
		return w.err
	}
	w.send(w.out.bytes[:w.n])
	w.out.release()
	w.out, w.n = nil, 0
	return w.err
}

func (w *writer) send(b []byte) error {
	if w.err == nil {
		_, w.err = w.to.Write(b)
		w.to.progress.Add(1)
	}
	return w.err
}
