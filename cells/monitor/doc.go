// Package monitor streams to clients what the agent does.
//
//	endpointmanager  -- Observe -->  [Monitor]  -->  ring of the last events  -->  GET /v1/events, any number of readers
//	server           -- Watch ---->      ^
//	other cells      -- [Publisher] -----'
//
// Publishing never blocks and never waits for a reader: a reader keeps only its place in the ring, and when the ring
// has gone past it, it goes on with the oldest event there is and sees the gap by Seq. Events are in memory, so they
// end with the agent, and Seq begins anew.
package monitor
