// Package httpproxy forwards HTTP/1.1 requests between one client and one server, each only if rules allow it. It is
// plain Go: no kernel programs, no fx, no listener.
//
//	          head         [Rules.Decide]           head as it was read,
//	client ---------> parse ------------> allowed ---- less hop-by-hop ---> server
//	   ^   <-- 400 ----'        '-- 403 --.              then body            |
//	   |                                  v                                   |
//	   '---- head, then body, less hop-by-hop <----- parse <-------- response-'
//	                                                   '-- 502: what can be read in two ways
//
// [Session] serves one connection of a client, with a goroutine that reads from the client and another for the server.
// They share the exchange: the request that is on its way, and its response. The next request is not read before both
// are done with, so requests that a client sends ahead are decided about and forwarded one after the other. The server
// is read from the first request on. Bytes from it between two requests end the connection; bytes while a request is on
// its way are taken for its response, as the client would.
//
// The forwarded request is the one that was decided about: the request line and the headers go on byte by byte, except
// headers that concern only one connection. Headers that say where the message ends are written in one form. Rules see
// only headers that go on. A message whose length or meaning two recipients could read differently is refused: with 400
// from a client, with 502 from a server. Bodies are streamed; between two TCP connections long ones do not pass through
// the process. Chunk extensions are left out, trailers are forwarded.
//
// To both peers the connection behaves as without a proxy: the end of the client's stream is passed on and the response
// still delivered; if the server closes a connection that had served requests, so does the proxy, and answers nothing
// for the server; if one dies in the middle of a message, the other's connection is reset, so that nothing truncated
// looks whole. Nothing is tried twice.
//
// After a response 101 to an offer that the proxy forwarded, both directions are copied without being looked at. It
// does not forward offers of h2c. A client that begins with HTTP/2 at once is handed to [Session.HTTP2].
//
// A connection between two requests holds no buffers: it waits for its socket to become readable, and takes them from a
// pool.
package httpproxy
