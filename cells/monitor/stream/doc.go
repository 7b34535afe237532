// Package stream keeps the last records of something in memory, and streams them to clients of the API as lines of JSON.
//
//	[Ring.Add] --> ring of the last records --> [Ring.Serve], any number of clients
//
// Adding never blocks and never waits for a client: a client keeps only its place in the ring, the number of the last record that it has. When the ring has gone
// past it, it goes on with the oldest record there is.
package stream
