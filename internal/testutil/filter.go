package testutil

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Clsact is the qdisc that filters are attached to. It takes them with it.
func Clsact(link int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// Filter is a BPF program on one side of the interface (netlink.HANDLE_MIN_INGRESS or HANDLE_MIN_EGRESS), in
// direct-action mode and for every protocol. Another filter with the same side, handle and priority takes its place.
func Filter(link int, side, handle uint32, priority uint16, program int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link, Parent: side, Handle: handle, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: program, Name: "of-the-test", DirectAction: true,
	}
}
