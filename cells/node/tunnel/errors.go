package tunnel

import "porin.dev/porin/internal/fault"

// Why there is no tunnel.
var (
	ErrUnsupported = fault.WithHint(fault.New(fault.Unavailable, "kernel lacks VXLAN, or the metadata of tunnels in BPF programs"),
		"run modprobe vxlan, or a kernel of Linux 6.0 or later with CONFIG_VXLAN; or give the agent --routing native or external")
	ErrForeign = fault.WithHint(fault.New(fault.Conflict, "there is an interface "+Device+" that is no VXLAN device of Porin"),
		"remove it, or rename it")
	ErrPort = fault.WithHint(fault.New(fault.Conflict, "somebody else receives at the UDP port of the tunnel"),
		"remove the other VXLAN device, or give all agents another --vxlan-port")
)
