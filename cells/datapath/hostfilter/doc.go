// Package hostfilter enforces egress policies in nftables where BPF programs on devices cannot: for what a pod sends to
// the node itself, after the node's translation of addresses, and for what leaves by a device without the program.
//
//	pod -> host end -> from_pod -> prerouting (DNAT) --> chain input      the node's own sockets
//	                                                 `-> chain forward -> device with a program, or a pod's host end
//
// [Filter.Apply] makes the table inet porin what [Desired] says, in one transaction. The number of rules is fixed: all
// else is elements of maps.
//
//	rows_of    interface -> number of the pod's rows
//	rows_to    number, address of the node -> number of other rows
//	ports, ... number, protocol, port (or range of ports, or type of ICMP) -> verdict; the most specific one decides
//
// The rows of a number never change, and a packet without a row is denied. Only elements that differ are written,
// and numbers stay over a restart. The table is there only while a pod is restricted.
//
// A pod's policy is in force when to_uplink is on the devices, and then the pod and the devices are in the table; a
// device that leaves Enforced leaves the table before it loses the program.
//
// Verdicts are for each packet that belongs to a connection that the pod opened, so a right that is revoked ends open
// connections. Replies of connections that others opened pass, and so do ICMP errors about any connection. Connections
// that are older than all rules of the node that ask its connection tracking count as opened by whoever sends the next
// packet.
//
// Concatenations with ranges take Linux 5.6.
package hostfilter
