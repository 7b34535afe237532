// Package agent calls the agent's HTTP API from the plugin, by hand: net/http alone would make a process that starts
// for every pod start twice as slowly.
//
// One call is one connection: HTTP/1.0 (RFC 1945), so that the answer is whole when its Content-Length is there, or else
// when the agent closes the connection, and never in chunks. Requests are written as encoding/json would write them;
// a test holds them against it.
//
// A failure is a [v1.Problem] when the agent refused, [ErrUnreachable] when it did not answer, [ErrTimeout] when the
// deadline passed, or else [ErrAnswer].
package agent
