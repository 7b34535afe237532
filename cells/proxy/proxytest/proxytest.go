// Package proxytest has what tests of the protocols of the proxy have in common.
package proxytest

import (
	"errors"
	"net"
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
