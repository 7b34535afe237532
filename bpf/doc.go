// Package bpf is the datapath in C, and what it is compiled to.
//
//	endpoint.bpf.c    the programs: from_pod and to_pod at a pod's host end, to_uplink and from_uplink at other devices, sweep for old connections
//	tunnel.bpf.c      the programs at the VXLAN device: to_tunnel, from_tunnel
//	listener.bpf.c    select_listener, which finds the proxy's socket for a connection
//	lib/              what they are made of, one idea a header:
//	  parse, flow       what a packet is, and which connection it belongs to
//	  endpoint          the pods of this node, by address and by link
//	  source, scope     whether the addresses of a packet are the pod's own; addresses that stay on one link
//	  connection, entry the map of connections; its entries, made and kept up to date. usage: how pods share its room
//	  path              through the stack, the shortcut, or directly to another node
//	  outgoing          policy for what a pod sends
//	  incoming          policy for what reaches a pod through the stack
//	  policy            the maps of network policy, and their lookup
//	  conntrack         what the node's conntrack knows of a connection
//	  count, event      counters; events for the agent
//	  owner             which node has an address
//	  remote, route     blocks of other nodes; the kernel's routes to them and from them
//	  from_uplink       its decisions about packets of pods of other nodes
//	  proxy, redirects  the way into the proxy, and back; the openers of accepted connections
//	  sweep, expiry     removing old connections: by the agent, and by a timer, which visits the keys in keyqueue
//	abi/              the types that C and Go share, generated from lib/types.h
//	include/          asm headers for a target that is no machine
//
// The agent before this one and the agent after it use the same pinned maps. So a map whose key, value, type or flags
// change gets a new name, the agent copies the old map, and then removes its pin: an earlier agent makes its own map
// again. A value may get a meaning in bits that were zero. test/e2e/testdata/versions has the earlier versions that are
// tested.
//
// The objects are committed: a node compiles nothing. "go generate ./bpf/..." makes them again, byte for byte, from
// any directory, with clang 19 and the headers of libbpf. The license of the C code and of the objects is in
// bpf/LICENSE: the kernel requires a compatible one.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types endpoint endpoint.bpf.c -- -mcpu=v3 -Wall -Wextra -Werror -fno-strict-aliasing -Iinclude
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types listener listener.bpf.c -- -mcpu=v3 -Wall -Wextra -Werror -fno-strict-aliasing -Iinclude
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types tunnel tunnel.bpf.c -- -mcpu=v3 -Wall -Wextra -Werror -fno-strict-aliasing -Iinclude
