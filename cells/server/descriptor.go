package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
)

// A caller passes a file descriptor (SCM_RIGHTS, unix(7)) on the first byte of a connection of its own, at most one.
// The connection's first request owns it: its handler takes it with [TakeDescriptor], or it is closed when the request
// ends.

// ErrNoDescriptor is returned when the caller passed no descriptor, or it did not arrive: the kernel drops descriptors
// when this process has no room for them, so the caller may try again.
var ErrNoDescriptor = fault.New(fault.Unavailable, "no file descriptor came with the request")

// TakeDescriptor returns the descriptor that came with the request, or an error that wraps [ErrNoDescriptor]. The
// caller must close the file.
func TakeDescriptor(ctx context.Context) (*os.File, error) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return nil, ErrNoDescriptor
	}
	return c.received.take()
}

// WithDescriptor returns a context from which [TakeDescriptor] takes the file: for tests of handlers.
func WithDescriptor(ctx context.Context, file *os.File) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{received: &descriptor{file: file}})
}

// descriptor is what came with the first byte of a connection.
type descriptor struct {
	mu   sync.Mutex // guards the fields below
	file *os.File   // nil when none came, or it was taken
	err  error      // why there is none
}

func (d *descriptor) take() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		return nil, cmp.Or(d.err, ErrNoDescriptor)
	}
	file := d.file
	d.file = nil
	return file, nil
}

func (d *descriptor) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		_ = d.file.Close()
		d.file = nil
	}
}

// closeDescriptors closes what a handler did not take.
func closeDescriptors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			defer c.received.close()
		}
		next.ServeHTTP(w, r)
	})
}

// descriptorListener accepts connections that receive descriptors. While slots is full it accepts none.
type descriptorListener struct {
	*net.UnixListener
	slots chan struct{}
}

func (l descriptorListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	release := sync.OnceFunc(func() { <-l.slots })
	conn, err := l.AcceptUnix()
	if err != nil {
		release()
		return nil, err
	}
	return &descriptorConn{UnixConn: conn, received: &descriptor{}, release: release}, nil
}

// descriptorConn receives a descriptor with its first byte. Descriptors that come later are closed by the kernel, as
// the connection is read without room for them from then on.
type descriptorConn struct {
	*net.UnixConn
	received *descriptor
	begun    bool // the first byte was read; net/http reads from one goroutine at a time
	release  func()
}

func (c *descriptorConn) Read(buf []byte) (int, error) {
	if c.begun {
		return c.UnixConn.Read(buf)
	}
	// Room for one descriptor and no more: unix.CmsgSpace would leave room for a second in its padding.
	control := make([]byte, unix.CmsgLen(4))
	n, controlLen, flags, _, err := c.ReadMsgUnix(buf, control) // closed on exec: net sets MSG_CMSG_CLOEXEC
	if n > 0 {
		c.begun = true
		file, controlErr := parseDescriptor(control[:controlLen], flags)
		c.received.mu.Lock()
		c.received.file, c.received.err = file, controlErr
		c.received.mu.Unlock()
	}
	return n, err
}

// Close also closes a descriptor that no request took.
func (c *descriptorConn) Close() error {
	defer c.release()
	c.received.close()
	return c.UnixConn.Close()
}

// parseDescriptor reads the control message of the first byte. It returns nil when none came.
func parseDescriptor(control []byte, flags int) (*os.File, error) {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(control)
	for _, message := range messages {
		if some, rightsErr := unix.ParseUnixRights(&message); rightsErr == nil {
			fds = append(fds, some...)
		}
	}
	if err == nil && len(fds) == 1 && flags&unix.MSG_CTRUNC == 0 {
		return os.NewFile(uintptr(fds[0]), "descriptor of the caller"), nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if len(control) == 0 && flags&unix.MSG_CTRUNC == 0 {
		return nil, nil
	}
	return nil, errTruncated
}

var errTruncated = fault.New(fault.Unavailable, "the control message of the request was truncated: want exactly one file descriptor; "+
	"the agent may be short of descriptors (RLIMIT_NOFILE)")
