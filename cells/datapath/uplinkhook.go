package datapath

import (
	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/datapath/loader"
)

// uplinkHook is where a device runs to_uplink. Devices are in the network namespace of the thread that made the hook.
type uplinkHook interface {
	// find returns the ID of the program on the device, which may be of a former agent; 0 is none.
	find(index int) (id uint32, err error)
	// attach puts the program before those of others, or in place of a former agent's without a gap.
	attach(index int) error
	// detach takes the program off, of whatever agent it is. That there is none is no error.
	detach(index int) error
}

// newUplinkHook uses TCX where the kernel has it: it needs no qdisc, which the kernel adds to a device that is up only by
// dropping packets for some milliseconds.
func newUplinkHook(program *loader.Program, handle *netlink.Handle, namespace tcxNamespace, tcx bool) uplinkHook {
	if tcx {
		return &tcxHook{program: program, namespace: namespace}
	}
	return &clsactHook{handle: handle, filter: uplinkFilter(program)}
}
