package proxy

import (
	"net"
	"time"
)

// How long a client's connection is idle before the kernel asks whether the client is still there: if not, the client's
// host answers with a reset. One without a request is asked soon: when the rules go while it is being opened, the
// server's node resets the client, and the proxy is not told. Until it is, a next connection of the client's with the
// same ports would get to this one.
const (
	idleBeforeRequest = time.Second
	idleAfterRequest  = 15 * time.Second // as package net has it
)

// The time from one probe to the next, also when the client has answered the first one: the kernel does not restart its
// timer for an answer (tcp_keepalive_timer in net/ipv4/tcp_timer.c).
const (
	intervalBeforeRequest = time.Second
	intervalAfterRequest  = 75 * time.Second // the kernel's default
)

// setKeepAlive sets when the kernel asks. An error says that the connection is over.
func setKeepAlive(conn *net.TCPConn, idle, interval time.Duration) {
	_ = conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: -1})
}
