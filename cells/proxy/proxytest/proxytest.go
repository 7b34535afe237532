// Package proxytest has what tests of the protocols of the proxy have in common.
package proxytest

import (
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

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

// WaitForData waits until there is something to read from a connection of TCP, and reads nothing.
func WaitForData(c net.Conn) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
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

// Memory is a bufconn.Memory for all sessions of a proxy.
type Memory struct{ left, refused atomic.Int64 }

// NewMemory returns an unused memory.
func NewMemory(bytes int64) *Memory {
	m := &Memory{}
	m.left.Store(bytes)
	return m
}

// Left is how many bytes may still be acquired.
func (m *Memory) Left() int64 { return m.left.Load() }

// HasRefused reports whether a caller has asked for more than there was.
func (m *Memory) HasRefused() bool { return m.refused.Load() > 0 }

// Acquire implements bufconn.Memory.
func (m *Memory) Acquire(bytes int) bool {
	if m.left.Add(-int64(bytes)) < 0 {
		m.left.Add(int64(bytes))
		m.refused.Add(1)
		return false
	}
	return true
}

// Release implements bufconn.Memory.
func (m *Memory) Release(bytes int) { m.left.Add(int64(bytes)) }

// MemoryInUse returns the bytes of heap and stacks, without what can be freed.
func MemoryInUse() int64 {
	for range 3 { // pools keep what they have for two collections
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
