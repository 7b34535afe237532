// Package proxytest has what tests of the protocols of the proxy have in common.
package proxytest

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// Eventually returns when ok does so with true, and fails the test when it does not in time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testutil.Eventually(t, func() error {
		if !ok() {
			return errors.New(what)
		}
		return nil
	})
}

// Listen returns a listener on the loopback device, which is closed when the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Budget is a bufconn.Memory for all sessions of a proxy.
type Budget struct{ left, refused atomic.Int64 }

// NewBudget returns one that nobody has taken anything of.
func NewBudget(bytes int64) *Budget {
	b := &Budget{}
	b.left.Store(bytes)
	return b
}

// Left is how many bytes may still be acquired.
func (b *Budget) Left() int64 { return b.left.Load() }

// HasRefused reports whether somebody has asked for more than there was.
func (b *Budget) HasRefused() bool { return b.refused.Load() > 0 }

// Acquire implements bufconn.Memory.
func (b *Budget) Acquire(bytes int) bool {
	if b.left.Add(-int64(bytes)) < 0 {
		b.left.Add(int64(bytes))
		b.refused.Add(1)
		return false
	}
	return true
}

// Release implements bufconn.Memory.
func (b *Budget) Release(bytes int) { b.left.Add(int64(bytes)) }
