package fleet

import (
	"bytes"
	"errors"
	"slices"
	"sync"
)

var errTooLarge = errors.New("too large")

// bounded keeps up to limit bytes, and fails the write that exceeds them. A stream may still write after Run has
// returned with an error.
type bounded struct {
	limit int
	full  func() // ends the command, which would go on without a reader

	mu       sync.Mutex
	data     bytes.Buffer
	exceeded bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data.Len()+len(p) > b.limit {
		b.exceeded = true
		b.full()
		return 0, errTooLarge
	}
	return b.data.Write(p)
}

// text returns a copy.
func (b *bounded) text() (text []byte, exceeded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.data.Bytes()), b.exceeded
}

// tail keeps the last maxStderr bytes.
type tail struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if more := len(t.data) - maxStderr; more > 0 {
		t.data = slices.Delete(t.data, 0, more)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}
