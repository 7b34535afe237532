// Package probe measures whether this node reaches the other nodes of the cluster and their health endpoints, and says
// which part is at fault.
//
//	Peers -> [Prober] --a round each interval--> [Transport]: ICMP echo, GET /hello
//	             |  all nodes, or a sample of them            |
//	             '--> [Prober.Nodes] <-- [State] of each path <'
//	                        '--> [Diagnose]
//
// A node has up to six paths: ICMP to the node, and ICMP and HTTP to its health endpoint, each by IPv4 and IPv6. The
// node itself is asked by ICMP alone: a port that is open on every node's own address would be an exposure for nothing,
// as the endpoint's answer comes from the same agent.
//
// This package opens no sockets, and takes its time from the package time alone. The real Transport is in the package
// network.
package probe
