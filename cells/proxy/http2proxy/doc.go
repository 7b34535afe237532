// Package http2proxy forwards HTTP/2, and so gRPC, between one client and one server, each request only if rules allow
// it. It is plain Go: no kernel programs, no fx, no listener.
//
//	          HEADERS          [Session.Decide]        the same fields
//	client ------------> parse -------------> allowed -----------------> server
//	   ^   <-- 400, RST ---'       '-- 403, or gRPC's status --.           |
//	   |                                                       v           |
//	   '----------- HEADERS, DATA, RST_STREAM, WINDOW_UPDATE, ... <--------'
//
// [Session] serves one connection of a client, with a goroutine that reads from the client and another for the server.
// It passes frames on: a stream has the same number on both connections, and a frame is sent on before the next one is
// read. Windows are set by the peers: a WINDOW_UPDATE goes to the other side, so that a peer sends only what the other
// one takes, nothing waits in the proxy, and a stream without a reader holds up no other one. Bytes that do not reach
// the other side (padding, the body of a denied request) are credited to its sender. Our own answers have no body,
// which would need a part of the client's window that the server believes to have.
//
// SETTINGS are passed on and acknowledged when the other side has done so. PING is passed on, so that it measures and
// guards the whole way. GOAWAY is passed on as it is. The sizes of frames and of compression tables are each
// connection's own. Server push is off.
//
// Each header block is decoded, checked and encoded again, with the same fields in the same order. A malformed message
// is not forwarded (RFC 9113, 8.1.1), nor is CONNECT in either form. Nothing is tried twice.
//
// [Session.Drain] sends GOAWAY, first a frame that refuses nothing, as requests may be on their way, and ends the
// connection when the last stream has ended.
//
// A connection without streams holds no buffers: it waits for its socket to become readable, and takes them from a
// pool.
package http2proxy
