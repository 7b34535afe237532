// Package masquerade has traffic of this node's pods that leaves the cluster leave with the node's address.
//
//	pod -> host end -> from_pod -> routing -> postrouting: others' translation (kube-proxy, 100)
//	                                      `-> postrouting: this table (110) -> to_uplink -> wire
//
// [Table] is the table inet porin-masquerade of nftables, which has a fixed number of rules. The content of [Desired]
// is in sets; only elements that differ are written. Connection tracking translates replies back, and the ICMP errors
// about a connection with them.
//
//   - Only the first packet of a connection meets the table. A change is for connections that are opened afterwards,
//     and replies of a connection that a client has opened to a pod are never masqueraded.
//   - The chain runs after others' chains. Where one of them, such as kube-proxy's, has chosen a source, that stays.
//   - Multicast, broadcast and link-local IPv6 keep their source: there, it is a part of the address. Link-local IPv4
//     is masqueraded, for the metadata services at 169.254.169.254 answer the node only.
//   - Source ports are chosen at random (fully-random, as kube-proxy does it). By default the kernel tries to keep the
//     port and else takes the next free one: when two packets that are translated at the same time, of two pods or of
//     one resolver's two queries, get the same, the second one is dropped, and its sender waits for its timeout.
//
// The families that are masqueraded, and excluded destinations, are in [Config].
package masquerade
