// Package stream keeps the last records of something in memory, and streams them to clients of the API as lines of
// JSON.
//
//	[Ring.Add] --> ring of the last records --> [Ring.Serve], any number of clients
//
// Adding never waits for a client. A client has only a position in the ring, the number of the last record that it has
// read. When the ring has overwritten the next one, it goes on with the oldest record there is.
package stream
