package httpproxy

import (
	"bytes"
	"errors"
	"io"
	"math"

	"porin.dev/porin/cells/proxy/bufconn"
)

// brokenBody is a body that is not forwarded further because of its sender.
type brokenBody struct{ reason Reason }

func (e *brokenBody) Error() string { return "body: " + string(e.reason) }

var (
	errChunk   = &brokenBody{ReasonChunk}
	errTrailer = &brokenBody{ReasonTrailer}
)

// readError is an error of the connection that a body comes from; errors of the destination are as they are.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// forward copies one body from a connection to the other, and flushes.
func (b framing) forward(w *writer, from *bufconn.Conn, limits *Limits) error {
	var err error
	switch {
	case b.chunked:
		err = forwardChunks(w, from, limits)
	case b.length > 0:
		err = forwardBytes(w, from, b.length)
	}
	return errors.Join(err, w.flush())
}

// forwardBytes copies n bytes. The last of them may not be flushed yet.
func forwardBytes(w *writer, from *bufconn.Conn, n int64) error {
	for n > 0 {
		if len(from.Data()) == 0 {
			if err := w.flush(); err != nil {
				return err
			}
			spliced, err := splice(w, from, n)
			if err != nil {
				return err
			}
			if n -= spliced; n == 0 {
				return nil
			}
			if err := from.Fill(0); err != nil {
				return readError{err}
			}
		}
		p := from.Data()
		p = p[:min(int64(len(p)), n)]
		if err := w.write(p); err != nil {
			return err
		}
		n -= int64(len(p))
		from.Discard(len(p))
	}
	return nil
}

// forwardStream copies what comes until the end of the stream.
func forwardStream(w *writer, from *bufconn.Conn) error {
	if err := forwardBytes(w, from, math.MaxInt64); !isEOF(err) {
		return err
	}
	return w.flush()
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// spliceMin is how much must wait for splice to cost less than reading and writing.
const spliceMin = 64 << 10

// maxSplice is how much may wait in a pipe of the kernel for a slow reader, beside the buffers of both sockets.
const maxSplice = 1 << 20

// splice moves what waits in the kernel, up to n bytes, without copying it to us. It does not wait for more, since it
// occupies a pipe.
func splice(w *writer, from *bufconn.Conn, n int64) (int64, error) {
	if n < spliceMin || from.TCP == nil || w.to.TCP == nil {
		return 0, nil
	}
	waiting := from.Waiting()
	if waiting < spliceMin {
		return 0, nil
	}
	n = min(n, int64(waiting), maxSplice)
	if !w.to.Memory.Acquire(int(n)) {
		return 0, nil
	}
	defer w.to.Memory.Release(int(n))
	moved, err := w.to.TCP.ReadFrom(&io.LimitedReader{R: from.TCP, N: n})
	w.to.Progress.Add(1)
	if err == nil {
		return moved, nil
	}
	// The error does not say whose it is. What waited is still there, or a read says why it is not.
	if err := from.Fill(0); err != nil {
		return moved, readError{err}
	}
	w.err = err
	return moved, err
}

// dropBytes reads n bytes and forgets them.
func dropBytes(from *bufconn.Conn, n int64) error {
	for n > 0 {
		if len(from.Data()) == 0 {
			if err := from.Fill(0); err != nil {
				return err
			}
		}
		k := min(int64(len(from.Data())), n)
		from.Discard(int(k))
		n -= k
	}
	return nil
}

// maxChunkLine bounds a chunk's size with its extensions.
const maxChunkLine = 256

// forwardChunks copies a chunked body with its trailers. Extensions are not forwarded (RFC 9112, 7.1.1).
func forwardChunks(w *writer, from *bufconn.Conn, limits *Limits) error {
	for {
		line, err := readLine(w, from, maxChunkLine, errChunk)
		if err != nil {
			return err
		}
		digits, size, ok := parseChunkLine(line)
		if !ok {
			return errChunk
		}
		if err := errors.Join(w.write(digits), w.write(crlf)); err != nil {
			return err
		}
		from.Discard(len(line) + 2)
		if size == 0 {
			return forwardTrailers(w, from, limits)
		}
		if err := forwardBytes(w, from, size); err != nil {
			return err
		}
		line, err = readLine(w, from, 0, errChunk)
		if err != nil {
			return err
		}
		if err := w.write(crlf); err != nil {
			return err
		}
		from.Discard(len(line) + 2)
	}
}

var crlf = []byte("\r\n")

// readLine returns the next line of a body, without its end, which stays in from's buffer. Gathered bytes are sent
// before it waits.
func readLine(w *writer, from *bufconn.Conn, longest int, fault error) ([]byte, error) {
	for {
		p := from.Data()
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			if i < 1 || i-1 > longest || p[i-1] != '\r' {
				return nil, fault
			}
			return p[:i-1], nil
		}
		if len(p) >= longest+2 {
			return nil, fault
		}
		if err := w.flush(); err != nil {
			return nil, err
		}
		if err := from.Fill(longest + 2); err != nil {
			return nil, readError{err}
		}
	}
}

// parseChunkLine reads a chunk's size in hexadecimal, and looks at the extensions only for characters that must not be
// in them.
func parseChunkLine(line []byte) (digits []byte, size int64, ok bool) {
	n := 0
	for n < len(line) && isHex(line[n]) {
		size = size<<4 | int64(unhex(line[n]))
		if n++; n > 15 {
			return nil, 0, false
		}
	}
	rest := line[n:]
	if n == 0 || len(rest) > 0 && rest[0] != ';' || !all(rest, inValue) {
		return nil, 0, false
	}
	return line[:n], size, true
}

func isHex(c byte) bool { return unhex(c) < 16 }

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// forwardTrailers copies what follows the last chunk. A trailer that says where a message goes or ends must not be
// there (RFC 9110, 6.5.1).
func forwardTrailers(w *writer, from *bufconn.Conn, limits *Limits) error {
	left := limits.HeadBytes
	for range limits.Headers {
		line, err := readLine(w, from, max(left, 0), errTrailer)
		if err != nil {
			return err
		}
		whole := from.Data()[:len(line)+2]
		if len(line) > 0 {
			if f, ok := parseField(whole, 0); !ok || f.known != other {
				return errTrailer
			}
		}
		if err := w.write(whole); err != nil {
			return err
		}
		last := len(line) == 0
		from.Discard(len(whole))
		if last {
			return nil
		}
		left -= len(whole)
	}
	return errTrailer
}
