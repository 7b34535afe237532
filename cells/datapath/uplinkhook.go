package datapath

import (
	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
)

// uplinkSide is one of the two directions of the uplinks, and the program there.
type uplinkSide struct {
	program   string // its name
	direction string
	tcx       ebpf.AttachType
	last      bool   // behind the programs of others by TCX; else before them
	parent    uint32 // of the filter on clsact
	priority  uint16 // of the filter

	reason reason // without which it is not known whether the program is required

	missing                               string // the kind of finding
	attached, detached, refused, orphaned string // what the log and a finding say
}

var (
	uplinkEgress = &uplinkSide{
		program: bpf.ToUplink, direction: "egress", tcx: ebpf.AttachTCXEgress, parent: netlink.HANDLE_MIN_EGRESS, priority: filterPriority,
		reason: egressPolicy, missing: uplinkProgramMissing,
		attached: "egress policy can be enforced on a device", detached: "egress policy is no longer enforced on a device",
		refused:  "egress policy cannot be enforced on a device: what pods with an egress policy send there is dropped",
		orphaned: "no endpoint has an egress policy, and there are no pods on other nodes",
	}
	// uplinkIngress is behind from_tunnel, whose filter has the priority 2.
	uplinkIngress = &uplinkSide{
		program: bpf.FromUplink, direction: "ingress", tcx: ebpf.AttachTCXIngress, last: true, parent: netlink.HANDLE_MIN_INGRESS, priority: 3,
		reason: directPath, missing: fromUplinkMissing,
		attached: "packets from pods of other nodes bypass the stack on a device", detached: "packets from pods of other nodes go through the stack on a device",
		refused:  "packets from pods of other nodes can only go through the stack on a device",
		orphaned: "there are no pods on other nodes",
	}
)

// uplinkHook is where a device runs a program. Devices are in the network namespace of the thread that made the hook.
type uplinkHook interface {
	// find returns the ID of the program on the device, which may be of a previous agent; 0 is none.
	find(index int) (id uint32, err error)
	// attach puts the program in its place among others' programs, or in place of a previous agent's without a gap.
	attach(index int) error
	// detach takes the program off, of whatever agent it is. That there is none is no error.
	detach(index int) error
}

// newUplinkHook uses TCX where the kernel has it: it needs no qdisc, which the kernel adds to a device that is up only
// by dropping packets for some milliseconds.
func newUplinkHook(side *uplinkSide, program *loader.Program, handle *netlink.Handle, namespace tcxNamespace, tcx bool) uplinkHook {
	if tcx {
		return &tcxHook{side: side, program: program, namespace: namespace}
	}
	filter := side.filter()
	filter.Fd, filter.Id = program.FD(), int(program.ID)
	return &clsactHook{handle: handle, filter: filter}
}
