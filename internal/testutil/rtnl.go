package testutil

import (
	"testing"

	"porin.dev/porin/internal/rtnl"
)

// Conn opens a socket of internal/rtnl in the namespace, closed at the end of the test. It is for the tests of that
// package and of cmd/cni; all others use [Namespace.Netlink].
func (n *Namespace) Conn(t testing.TB) *rtnl.Conn {
	t.Helper()
	var conn *rtnl.Conn
	err := n.Do(func() (err error) {
		conn, err = rtnl.Dial()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
