// Package server is the agent's HTTP API: a chi router on a Unix socket, on which other cells mount their routes.
//
//	porin-cni, porin  ->  socket  ->  measure, log, recover, peer, deadline, body limit  ->  a cell's handler
//	                                                                                          ^
//	ipam, endpointmanager, monitor  -- [Provide] their [Routes] -------------------------------'
//	datapath, endpointmanager, ...  -- [Report] on GET /v1/status
//	monitor, endpointmanager, ...   -- [Watch] when serving begins and ends
//
// What it promises: only root, the agent's own user and the socket's group are served. One agent a socket: a second
// one is refused and named the first (with [LockSocket] before it has touched anything), and what a killed one left is
// cleared away, without a race between two that start. Every failure is a problem body with a stable code, a panic
// too. The socket is there only while everything behind it works: it opens after the cells whose routes it carries have
// started, and closes before they stop.
//
// Hooks run in the order in which they are appended, and the server asks for every [Routes], so a cell that appends
// its hook in a constructor has started before the socket opens. A cell that starts in an fx.Invoke has to be listed
// before this one.
package server
