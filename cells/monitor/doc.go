// Package monitor streams to clients what the agent does.
//
//	endpointmanager  -- Observe -->  [Monitor]  -->  ring of the last events  -->  GET /v1/events, any number of readers
//	server           -- Watch ---->      ^
//	other cells      -- [Publisher] -----'
//
// Publishing never waits for a reader: package stream has the ring. A reader that was too slow sees the gap by Seq.
// Events are in memory, so they end with the agent, and Seq starts from zero.
package monitor
