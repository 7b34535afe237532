// Package health gives the node an endpoint like any other that says "here I am", and probes the other nodes'
// endpoints.
//
//	Keeper --each 30 s--> endpointmanager: the health endpoint (its own network namespace, kind health)
//	   |  '--> responder in that namespace: GET /hello on TCP 4240; the kernel there answers ICMP
//	   '--> [LocalEndpoint] (a subscriber) --> who publishes the node's record        probe.Prober <-- [probe.Peers]: the other nodes
//	                                                                                '--> GET /v1/health, metrics
//
// What it promises:
//
//   - The endpoint is made after everything is restored, and no call waits for it. A restart of the agent leaves it as
//     it is: ICMP is answered meanwhile, HTTP again when the agent is back.
//   - It is probed end to end each 30 seconds. A failing one is replaced and keeps its addresses.
//   - No policy selects it, no runtime's GC takes it for a leftover, and all pods and nodes of the cluster may reach
//     it.
package health
