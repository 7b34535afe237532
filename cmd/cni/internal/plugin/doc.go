// Package plugin is what porin-cni does for each CNI command. It holds no state and no policy: it makes the veth pair,
// asks the agent, and sets in the container what the agent answered.
//
//	ADD     open netns -> veth pair, the container's end down -> PUT /v1/endpoint -> addresses, routes, neighbours, up
//	DEL     DELETE /v1/endpoint, whose answer means that the link is gone; without an agent: cut, record, remove
//	CHECK   the result of ADD = the agent's endpoint = the kernel in the container; GET /v1/doctor for that of the node
//	STATUS  GET /v1/status: ready, and all resources there
//	GC      POST /v1/gc
//
// Until the agent has the host end under its programs, the container's end is down and no packet passes. When a part
// of ADD fails, the ones before it are undone in reverse, and nothing is left.
//
// Every call says when it began, by a clock that the agent shares, so that the agent can tell a late ADD from a new life
// and a late DEL from one of this life. Every call ends with "timeout" of the configuration, but for the undo of an ADD,
// which has 5 s of its own, and for what the kernel takes. A DEL fails only when another try can help; of its time it keeps a
// third, 5 s at most, for doing without an agent that hangs.
package plugin
