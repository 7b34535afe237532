// Package bufconn reads from a connection into a buffer that is held only while it has data. A connection that waits
// for its peer has no buffer.
package bufconn

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

// BufferSize is the size of a connection's buffer while it has data; it grows for a longer head. A frame of HTTP/2's
// usual size fits in it, and it is a size that the allocator has.
const BufferSize = 18 << 10

// Buffer is one of a pool of buffers of the same size.
type Buffer struct{ Bytes []byte }

var buffers = sync.Pool{New: func() any { return &Buffer{Bytes: make([]byte, BufferSize)} }}

// TakeBuffer returns a buffer of BufferSize.
func TakeBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Release gives the buffer back.
func (b *Buffer) Release() {
	if len(b.Bytes) == BufferSize {
		buffers.Put(b)
	}
}

// ErrFull is returned by [Conn.Fill] when the buffer is as large as it may be.
var ErrFull = errors.New("the buffer is full")

// Memory bounds what connections hold. Its methods may be called concurrently.
type Memory interface {
	// Acquire reports whether a connection may hold so many bytes more.
	Acquire(bytes int) bool
	// Release gives back what Acquire was granted.
	Release(bytes int)
}

// Unlimited is a [Memory] without a bound.
type Unlimited struct{}

// Acquire implements [Memory].
func (Unlimited) Acquire(int) bool { return true }

// Release implements [Memory].
func (Unlimited) Release(int) {}

// ErrMemory is returned when [Memory] lets a connection hold no more.
var ErrMemory = errors.New("the connections of this endpoint hold too much memory")

// Conn is a connection, with what was read from it and not used yet. Only one goroutine may read.
type Conn struct {
	net.Conn
	TCP      *net.TCPConn   // nil for another kind, which tests have
	Progress *atomic.Uint32 // counts the reads that got something
	Memory   Memory         // for what it has in its buffer
	raw      syscall.RawConn

	held int     // bytes of Memory
	buf  *Buffer // nil while nothing is in it
	r, w int     // what is in it

	// Arguments and results of the calls on the socket; they are here so that no call needs a closure of its own.
	read      func(fd uintptr) bool
	got       int
	err       error
	available func(fd uintptr)
}

// New returns a Conn that has read nothing.
func New(c net.Conn, progress *atomic.Uint32, memory Memory) *Conn {
	n := &Conn{Conn: c, Progress: progress, Memory: memory}
	n.read = n.tryRead
	n.available = n.askAvailable
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			n.TCP, n.raw = tcp, raw
		}
	}
	return n
}

// Data is what was read and not used yet. It is valid until the next call of Fill or Discard.
func (c *Conn) Data() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf.Bytes[c.r:c.w]
}

// Discard drops the first n bytes of data.
func (c *Conn) Discard(n int) {
	if c.r += n; c.r == c.w && c.buf != nil {
		c.buf.Release()
		c.Memory.Release(c.held)
		c.buf, c.r, c.w, c.held = nil, 0, 0, 0
	}
}

// hold acquires memory for the buffer. Without it the connection cannot be read any more.
func (c *Conn) hold(bytes int) error {
	if more := bytes - c.held; more > 0 {
		if !c.Memory.Acquire(more) {
			return ErrMemory
		}
		c.held = bytes
	}
	return nil
}

// Fill waits for data and reads it behind what is there. The buffer grows to limit at most.
func (c *Conn) Fill(limit int) error {
	if c.buf != nil && c.w == len(c.buf.Bytes) {
		if err := c.makeRoom(limit); err != nil {
			return err
		}
	}
	if c.raw == nil {
		if c.buf == nil {
			c.buf = TakeBuffer()
		}
		c.got, c.err = c.Conn.Read(c.buf.Bytes[c.w:])
		if c.got <= 0 {
			c.Discard(0)
		}
	} else if err := c.raw.Read(c.read); err != nil {
		return err
	}
	if c.got > 0 {
		c.w += c.got
		c.Progress.Add(1)
		return c.hold(len(c.buf.Bytes))
	}
	if c.err == nil {
		return io.EOF
	}
	return c.err
}

func (c *Conn) makeRoom(limit int) error {
	if c.r > 0 {
		c.w = copy(c.buf.Bytes, c.buf.Bytes[c.r:c.w])
		c.r = 0
		return nil
	}
	if c.w >= limit {
		return ErrFull
	}
	size := min(4*c.w, max(limit, c.w+1))
	if err := c.hold(size); err != nil {
		return err
	}
	larger := &Buffer{Bytes: make([]byte, size)}
	copy(larger.Bytes, c.buf.Bytes[:c.w])
	c.buf.Release()
	c.buf = larger
	return nil
}

// tryRead reads without waiting, and takes a buffer only for that time. It reports whether the call is over.
func (c *Conn) tryRead(fd uintptr) bool {
	buf := c.buf
	if buf == nil {
		buf = TakeBuffer()
	}
	var err error
	for {
		if c.got, err = syscall.Read(int(fd), buf.Bytes[c.w:]); err != syscall.EINTR {
			break
		}
	}
	switch {
	case c.got > 0:
		c.buf, c.err = buf, nil
		return true
	case c.buf == nil:
		buf.Release()
	}
	if err == syscall.EAGAIN {
		return false
	}
	c.err = os.NewSyscallError("read", err)
	return true
}

// Waiting returns how many bytes the kernel holds for us.
func (c *Conn) Waiting() int {
	if err := c.raw.Control(c.available); err != nil || c.err != nil {
		return 0
	}
	return c.got
}

func (c *Conn) askAvailable(fd uintptr) { c.got, c.err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }

// CloseWrite ends our stream, and lets the peer's go on.
func (c *Conn) CloseWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() // if the connection is gone, the next read says so
		return
	}
	c.Close()
}

// Linger drops what the peer still sends, up to about limit bytes, until the end of its stream or an error.
// To close the connection before would reset it, and the peer might lose what was written last.
func (c *Conn) Linger(limit int) {
	for dropped := 0; dropped < limit; {
		dropped += len(c.Data())
		c.Discard(len(c.Data()))
		if err := c.Fill(0); err != nil {
			return
		}
	}
}

// Reset closes the connection in a way that the peer cannot take for the end of a stream.
func (c *Conn) Reset() {
	if c.TCP != nil {
		c.TCP.SetLinger(0)
	}
	c.Close()
}
