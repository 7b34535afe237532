// Package hostport has ports of the node lead to pods: the CNI capability portMappings, without a chained plugin.
//
//	outside -> prerouting \                                  .-> a process of the pod
//	                       table inet porin-hostport: DNAT --'   sees the client's address
//	process -> output     /
//
// [Step] is the endpoint's part: a claim of ports, which two endpoints cannot have at once, and elements of the maps of
// one table of nftables, whose rules are fixed. A claim is of an address of the node, or of all of a family.
//
// The translation is for packets to the node's own addresses, and runs after kube-proxy's. Two sources are
// replaced by the node's address, as the pod could not answer: the pod's own, when it reaches itself by the node, and
// 127.0.0.0/8, for which the pod's host end gets route_localnet. Packets of pods from and to 127.0.0.0/8 are dropped by
// from_pod, and route_localnet is on no other device. IPv6 has no route_localnet: a port of ::1 leads nowhere.
//
// A previous agent's entries in the table stay until the endpoints are restored, and then goes, unless it leads to an
// endpoint that the manager holds ([Step.Occupy]).
package hostport
