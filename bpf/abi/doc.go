// Package abi has the types that the BPF programs and the agent share, generated from bpf/lib/types.h.
//
// Maps hold them in the byte order of the wire where the C code says so, and in the machine's elsewhere.
package abi

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -output-stem abi -type addr -type mac -type endpoint -type link -type counter -type passed -type drops -type drop_reason -type endpoint_flag -type connection_key -type connection -type connection_path -type connection_state -type slot -type usage -type limits -type sweep -type policy -type flow_event -type event_place -type event_budget -type address_key -type prefix_key -type table_key -type row_key -type cidr_key -type owner -type owner_flag -type tunnel_drops -type tunnel_drop -type unmanaged -type redirect_key -type redirect -type redirect_turn -type listener c abi.bpf.c -- -mcpu=v3 -Wall -Wextra -Werror -I../include
