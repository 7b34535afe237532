package proxy

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// How long a client's connection is idle before the kernel asks whether the client is still there. One without a request is asked soon: when the rules go while it is being
// opened, the server's node resets the client, and the proxy is not told. Until it is, a next connection of the client's with the same ports would get to this one.
const (
	probeBeforeRequest = time.Second
	probeAfterRequest  = 15 * time.Second
)

// probe has the kernel ask after a time without a segment (RFC 9293, 3.8.4). A connection that is over needs none.
func probe(conn *net.TCPConn, after time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(after/time.Second))
	})
}
