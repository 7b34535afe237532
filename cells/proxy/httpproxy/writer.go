package httpproxy

import "porin.dev/porin/cells/proxy/bufconn"

// writer gathers what is written to a connection, so that a head and the beginning of its body are one call. After an
// error it returns the same one from every call.
type writer struct {
	to   *bufconn.Conn
	out  *bufconn.Buffer // nil while nothing is gathered
	held bool            // memory for it
	n    int
	err  error
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
	if w.out != nil && w.n == len(w.out.Bytes) {
		w.flush()
	}
	if w.out == nil {
		w.out = bufconn.TakeBuffer()
		if w.held = w.to.Memory.Acquire(bufconn.BufferSize); !w.held && w.err == nil {
			w.err = bufconn.ErrMemory
		}
	}
	return w.out.Bytes[w.n:]
}

func (w *writer) flush() error {
	if w.out == nil {
		return w.err
	}
	w.send(w.out.Bytes[:w.n])
	w.out.Release()
	if w.held {
		w.to.Memory.Release(bufconn.BufferSize)
	}
	w.out, w.n, w.held = nil, 0, false
	return w.err
}

func (w *writer) send(b []byte) error {
	if w.err == nil {
		_, w.err = w.to.Write(b)
		w.to.Progress.Add(1)
	}
	return w.err
}
