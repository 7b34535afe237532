package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fd"
)

// A frame is four bytes with the length of a message, in network byte order, and the message as JSON. File descriptors
// that belong to it come with its first byte (SCM_RIGHTS, unix(7)).

const (
	// maxMessage bounds a message. The largest has all layer 7 rules of a node.
	maxMessage = 64 << 20
	// maxFiles bounds the descriptors of a message. A handover has 37: the listening sockets, two locks and the control
	// socket.
	maxFiles = 64
	// writeTimeout is how long the other end may be without reading.
	writeTimeout = 2 * time.Second
)

var (
	errTooLarge  = fmt.Errorf("a message is longer than %d bytes", maxMessage)
	errTruncated = errors.New("descriptors of a message were lost: the process is short of descriptors (RLIMIT_NOFILE)")
)

// message is a call, the answer to one, or a notification: a call without ID and without an answer.
type message struct {
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"` // "" in an answer
	Body   json.RawMessage `json:"body,omitempty"`
	Error  *wireError      `json:"error,omitempty"` // in an answer

	files []*os.File // the receiver closes them
}

// wire reads and writes messages. One goroutine may read while several write.
type wire struct {
	conn    *net.UnixConn
	writing chan struct{} // has a token while a message is written
}

func newWire(conn *net.UnixConn) wire { return wire{conn, make(chan struct{}, 1)} }

// write sends a message. It closes none of its files. When it cannot write it closes the connection, with
// [errConnClosed]. While another message is written it waits no longer than ctx.
func (w *wire) write(ctx context.Context, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	if len(text) > maxMessage {
		return errTooLarge
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	select {
	case w.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.writing }()
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("%w: %w", errConnClosed, err)
	}
	if err = w.writeFirst(frame[:1], m.files, nil); err == nil {
		_, err = w.conn.Write(frame[1:])
	}
	if err != nil {
		_ = w.conn.Close() // the other end may have half of a message
		return fmt.Errorf("%w: %w", errConnClosed, err)
	}
	return nil
}

// writeFirst writes the first byte of a frame with the descriptors. [os.File.Fd] would make the sockets block, also in
// the other process.
func (w *wire) writeFirst(b []byte, files []*os.File, fds []int) (err error) {
	if len(files) == 0 {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		_, _, err = w.conn.WriteMsgUnix(b, rights, nil)
		return err
	}
	return fd.Do(files[0], func(fd int) error { return w.writeFirst(b, files[1:], append(fds, fd)) })
}

// read returns the next message, with its files.
func (w *wire) read() (m message, err error) {
	var length [4]byte
	m.files, err = w.readFirst(length[:1])
	defer func() {
		if err != nil {
			closeFiles(m.files)
		}
	}()
	if err != nil {
		return m, err
	}
	if _, err := io.ReadFull(w.conn, length[1:]); err != nil {
		return m, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxMessage {
		return m, errTooLarge
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(w.conn, text); err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil { // fields that it does not know are of a later version
		return m, fmt.Errorf("decode a message: %w", err)
	}
	return m, nil
}

// readFirst reads the first byte of a frame with the descriptors.
func (w *wire) readFirst(b []byte) (files []*os.File, err error) {
	control := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, controlLen, flags, _, err := w.conn.ReadMsgUnix(b, control) // closed on exec: net sets MSG_CMSG_CLOEXEC
	messages, parseErr := unix.ParseSocketControlMessage(control[:controlLen])
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), "descriptor of a message"))
			}
		}
	}
	switch {
	case err != nil:
		return files, err
	case parseErr != nil:
		return files, fmt.Errorf("read the descriptors of a message: %w", parseErr)
	case flags&unix.MSG_CTRUNC != 0:
		return files, errTruncated
	case n == 0:
		return files, io.EOF
	}
	return files, nil
}

func (w *wire) close() error { return w.conn.Close() }

func closeFiles(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}
