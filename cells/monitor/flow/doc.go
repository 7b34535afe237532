// Package flow tells which connections pods open, and which packets are dropped, with the pods, their labels and the
// rules that decide.
//
//	datapath -- [Source] --> [Collector], every 100 ms --> ring of the last flows --> GET /v1/flows, any number of clients
//	                             ^                    `--> [Collector.Recent]: distinct flows, for porin policy diff
//	[Endpoints], [Policies], [Translations], and accesslog.Log: the requests through the proxy
//
// What it promises:
//
//   - A request through the proxy is told of once, and so is its TCP connection. A DNS query by UDP is told of as a request alone.
//   - A packet is told of once. A packet that a pod sends up the node's stack, and that opens a connection, is undecided: it is told of when it has
//     reached another pod, or is dropped on an uplink, where the datapath sees it again, and at once when it ends at
//     the node, or leaves it. Its destination is the real one, which conntrack knows.
//   - The datapath never waits. Neither does the agent spend more than a fifth of one CPU on flows: flows that the
//     datapath cannot report, or the agent cannot read in time, are lost and counted.
//   - The memory is bounded by --monitor-flows: see [Config].
//   - Rules are from the policies at the time of reading, at most 100 ms after the packet. When they say another thing
//     than the datapath has done, they are left out. An endpoint that is gone meanwhile is named as it was.
//
// Flows are in memory, so they end with the agent. What happens while no agent runs waits in the kernel, as much as has
// room.
package flow
