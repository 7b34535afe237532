package datapath

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// uplinkHandle is the handle of our filter. Others may have filters of the same priority on the device; of these, the
// newest runs first.
const uplinkHandle = 0x706f7269

// clsactHook is a filter on the qdisc clsact, for kernels without TCX.
type clsactHook struct {
	handle *netlink.Handle
	filter netlink.BpfFilter // less its LinkIndex
}

// filter lacks the program.
func (s *uplinkSide) filter() netlink.BpfFilter {
	return netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{Parent: s.parent, Handle: uplinkHandle, Priority: s.priority, Protocol: unix.ETH_P_ALL},
		Name:        s.program, DirectAction: true,
	}
}

func (h *clsactHook) find(index int) (uint32, error) {
	id, err := programAt(h.handle, index, h.filter)
	return uint32(id), err
}

// errIngress is returned for a device with the qdisc ingress, which excludes clsact. It runs all filters at the
// ingress, also those for the egress.
var errIngress = errors.New("another program has put the qdisc ingress there: replace it by clsact")

func (h *clsactHook) attach(index int) error {
	err := h.handle.QdiscAdd(clsact(index))
	if errors.Is(err, unix.EEXIST) {
		err = h.checkClsact(index)
	}
	if err != nil {
		return explainFilter("add clsact to link", index, err)
	}
	filter := h.filter
	filter.LinkIndex = index
	return explainFilter("attach "+filter.Name+" to link", index, h.handle.FilterReplace(&filter))
}

func (h *clsactHook) checkClsact(index int) error {
	qdiscs, err := nl.Dump(func() ([]netlink.Qdisc, error) { return h.handle.QdiscList(nl.LinkAt(index)) })
	if err == nil && !slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" }) {
		err = errIngress
	}
	return err
}

// detach leaves the qdisc: others may have filters on it, or add them at any time.
func (h *clsactHook) detach(index int) error {
	filter := h.filter
	filter.LinkIndex = index
	return explain("detach "+filter.Name+" from link", index, ignoreRefusal(h.handle.FilterDel(&filter)))
}
