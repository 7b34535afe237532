// Package plugin is what porin-cni does for each CNI command. It holds no state and no policy: it makes the veth pair,
// asks the agent, and sets in the container what the agent answered.
//
//	ADD     open netns -> veth pair, the container's end down -> PUT /v1/endpoint -> addresses, routes, neighbours, up
//	DEL     DELETE /v1/endpoint, whose answer means that the link is gone; without an agent: cut, record, remove
//	CHECK   the result of ADD = the agent's endpoint = the kernel in the container; GET /v1/doctor for that of the node
//	STATUS  GET /v1/status: ready, and all resources there
//	GC      POST /v1/gc
//
// A container names the pool of its addresses in CNI_ARGS (PORIN_POOL), by its pod's annotation, or leaves it to the network
// ("pool") and then to the agent; and what was reserved for it by a token (PORIN_RESERVATION). The agent knows the pools.
//
// When the configuration has an "ipam" section with a "type", that IPAM plugin gives the addresses, and Porin's agent none
// (CNI specification 1.1.0, section 4). The agent keeps record of them, and never releases them.
//
//	ADD     ... veth pair -> its ADD -> PUT /v1/endpoint, externalIPAM; a failure of it, or after it: its DEL
//	DEL     ... the endpoint and the link are gone, or cut off and on record -> its DEL
//	CHECK, STATUS, GC: its own, after ours has succeeded
//
// It is called as this plugin was, and for an attachment once at a time, so that a DEL waits for the ADD that a killed caller
// has left behind: same environment, same configuration byte by byte. Its errors are passed on as they are.
// Of its result come the addresses, one a family at most and none of the node's own; routes of the main table, by Porin's next
// hop; and dns unless the configuration has it. Prefix lengths do not, as a container has its address alone, and gateways are
// only shown: there is one next hop. A plugin that says that it does not know CHECK, GC or STATUS has nothing to say about the
// matter, unless it also says that it does not speak the version of the configuration. Addresses go back when
// nothing uses them any more, and not when the attachment has begun another life: the IPAM plugin knows of no lives. So a GC
// that fails here is not passed on, and an ADD over an attachment that the IPAM plugin refuses takes that attachment down.
//
// Until the agent has the host end under its programs, the container's end is down and no packet passes: but for the IPAM plugin
// dhcp, which gets its lease over that link. When a part
// of ADD fails, the ones before it are undone in reverse, and nothing is left.
//
// Every call says when it began, by a clock that the agent shares, so that the agent can tell a late ADD from a new life
// and a late DEL from one of this life. Every call ends with "timeout" of the configuration, but for the undo of an ADD,
// which has 5 s of its own, and 5 s more for an IPAM plugin, and for what the kernel takes. A DEL fails only when another try
// can help; of its time it keeps a third, 5 s at most, for doing without an agent that hangs.
package plugin
