package proxy

import (
	"net"
	"time"
)

// How long a client's connection is idle before the kernel asks whether the client is still there: if not, the client's host answers with a reset. One without a request is
// asked soon: when the rules go while it is being opened, the server's node resets the client, and the proxy is not told. Until it is, a next connection of the client's
// with the same ports would get to this one.
const (
	idleBeforeRequest = time.Second
	idleAfterRequest  = 15 * time.Second // as package net has it
)

// How long after a question the kernel asks again, also when it was answered: an answer does not set its timer again
// (tcp_keepalive_timer in net/ipv4/tcp_timer.c).
const (
	againBeforeRequest = time.Second
	againAfterRequest  = 75 * time.Second // the kernel's default
)

// setKeepAlive sets when the kernel asks. An error says that the connection is over.
func setKeepAlive(conn *net.TCPConn, idle, again time.Duration) {
	_ = conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: idle, Interval: again, Count: -1})
}
