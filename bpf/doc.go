// Package bpf is the datapath in C, and what it is compiled to.
//
//	endpoint.bpf.c   the programs at a pod's link: parse, look up, decide, act; and the one that removes old connections
//	  parse, flow    what a packet is, and which connection it belongs to        path         stack or shortcut, for all packets of a connection
//	  connection     the map of connections and its shares                       conntrack    what the node's conntrack knows
//	  sweep, expiry  removing those that are over: by the agent, by a timer      keyqueue     the keys of all connections, for the timer
//	lib/             what they are made of, one idea a header
//	abi/             the types that C and Go share, generated
//	include/         asm headers for a target that is no machine
//
// The objects are committed: a node compiles nothing. "go generate ./bpf/..." makes them again, byte for byte, from
// any directory, with clang 19 and the headers of libbpf. The license of the C code and of the objects is in
// bpf/LICENSE, as the kernel wants it compatible with its own.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types endpoint endpoint.bpf.c -- -mcpu=v3 -Wall -Wextra -Werror -fno-strict-aliasing -Iinclude
