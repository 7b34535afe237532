// Package tunnel has the node's VXLAN device, which reaches pods of other nodes over any network, and the programs on
// it.
//
//	from_pod, or the stack -- routes to blocks --> to_uplink --> to_tunnel --> [Device] --> UDP between nodes, IPv4 or IPv6
//	                                                                 |
//	[Desired.Owners] --> map owners: prefix -> node -----------------+
//	                                                                 |
//	the pod, or the stack <-- from_uplink <--------------------- from_tunnel <-- [Device]
//
// The device takes outer addresses from the metadata of each packet, and needs no entry for a node: no forwarding
// table, no neighbours. All nodes have the same link address, [MAC], and no ARP: whatever the next hop is, a frame is
// for the other end. to_tunnel writes another sender.
//
// from_tunnel trusts no sender. The device is up only while both programs are on it. Device, programs and map stay when
// the agent ends, and work; they are pinned below the BPF root, and programs of another version are replaced in place.
package tunnel
