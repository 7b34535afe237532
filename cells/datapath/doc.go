// Package datapath gives an endpoint its place in the kernel: the shared BPF programs on the host end of its veth
// pair, its entries in their maps, and a route and a neighbour entry for each of its addresses.
//
//	CNI ADD -> endpointmanager -> [Step] --> [Maps]    entries by link, by address and by endpoint
//	                                 `-----> [Links]   clsact filters, routes, neighbours; the end of a link
//
//	from_pod, to_pod <--> map connections --> [Datapath.SweepConnections], every 10 s: removes what is over
//
//	egress policies -> [Uplinks]   to_uplink on the node's other devices, while there are such policies or other nodes
//	                -> hostfilter  nftables: what ends at the node, and a guard for devices without to_uplink
//	blocks of other nodes          from_uplink on the same devices, while there are any: their pods' packets bypass the stack
//
//	[Datapath] Start: loader adopts the pinned programs by digest, or loads and pins them; open sockets
//	[Checker]  the doctor's: compares the endpoints with what the kernel has      [CapacitySource]  how many more fit
//
// Programs are loaded once and shared: an endpoint is data, and making one takes eight netlink calls and four map
// updates, with both families. All state is in the kernel, so packets pass while no agent runs, and an agent that
// starts finds the same programs and loads nothing. What changed is replaced filter by filter, between two packets.
//
// [Maps] and [Links] are each a [Part], which says in one place what an endpoint should have and how that differs from
// what there is:
//
//	Attach     Update, which asks for nothing
//	Restore    Compare, and Update if there is a [Difference]; a repair is a Restore
//	Prune      Orphans, and Remove of each
//	doctor     Compare and Orphans; the repairs are Restore and Remove
//	kernel     its notifications lead to Compare, and to a repair at once: [Checker.Follow]
//
// It touches links of its own only: veth host ends named by [v1.HostInterfaceName] after the attachment. Its marks are
// that name, the protocol number of its routes, and what is below the BPF root.
//
// The node forwards IPv4 from the start, and IPv6 from the first endpoint with an IPv6 address: see router.
//
// A Datapath belongs to the network namespace of the thread that calls Start, wherever its methods are called.
package datapath
