// Package plugin is what porin-cni does for each CNI command. It holds no state and no policy: it makes the veth pair,
// asks the agent, and sets in the container what the agent answered.
//
//	ADD     open netns -> veth pair, the container's end down -> PUT /v1/endpoint -> addresses, routes, neighbours, up
//	DEL     DELETE /v1/endpoint, whose answer means that the link is gone; without an agent: cut, record, remove
//	CHECK   the result of ADD = the agent's endpoint = the kernel
//	STATUS  GET /v1/status
//	GC      GET /v1/endpoint?network=, then DEL of what is not valid
//
// Until the agent has the host end under its programs, the container's end is down and no packet passes. When a part
// of ADD fails, the ones before it are undone in reverse, and nothing is left.
package plugin
