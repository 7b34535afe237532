// Package datapath gives an endpoint its place in the kernel: the shared BPF programs on the host end of its veth
// pair, its entries in their maps, and a route and a neighbour entry for each of its addresses.
//
//	CNI ADD -> endpointmanager -> [Step] --> [Maps]    entries by link, by address and by endpoint
//	                                 `-----> [Links]   clsact filters, routes, neighbours; the end of a link
//
//	[Datapath] Start: adopt the pinned programs by digest, or load and pin them; open sockets
//	[Checker]  what the kernel has <-> the endpoints          [Room]  how many more the maps can have
//
// Programs are loaded once and shared: an endpoint is data, and making one takes two netlink calls and four map
// updates. All state is in the kernel, so packets pass while no agent runs, and an agent that starts finds the same
// programs by the digest of object and configuration, checks that they are what they are said to be, and loads
// nothing. What changed is replaced filter by filter, between two packets. Maps of another size than configured are
// copied into maps of this size, which are pinned in their place; links go over to them with their filters, and the old
// ones end with the last program that uses them.
//
// It touches links of its own only: veth host ends named by [v1.HostInterfaceName] after the attachment. Its marks are
// that name, the protocol number of its routes, and what is below the BPF root.
//
// The node forwards IPv4 from the start, and IPv6 from the first endpoint with an IPv6 address: see router.
//
// A Datapath belongs to the network namespace of the thread that calls Start, wherever its methods are called.
package datapath
