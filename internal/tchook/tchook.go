// Package tchook attaches a BPF program to one side of network devices: by TCX (Linux 6.6), or on older kernels as a
// filter of the qdisc clsact, which the kernel adds to a device that is up only by dropping packets for some
// milliseconds. In both cases the program stays until the device goes, or it is detached.
package tchook

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// FilterHandle is the handle of our filters ("pori" in ASCII). Others may have filters of the same priority on a
// device: the newest runs first.
const FilterHandle = 0x706f7269

// Side is a side of devices, and the program there.
type Side struct {
	Program  string // its name, also in the kernel
	Ingress  bool   // else the side is the egress
	First    bool   // before the programs of others by TCX; else behind them
	Priority uint16 // of the filter
}

// Direction is "ingress" or "egress".
func (s Side) Direction() string {
	if s.Ingress {
		return "ingress"
	}
	return "egress"
}

func (s Side) attachType() ebpf.AttachType {
	if s.Ingress {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

// filter is the filter on a device, without the program.
func (s Side) filter(index int) *netlink.BpfFilter {
	parent := uint32(netlink.HANDLE_MIN_EGRESS)
	if s.Ingress {
		parent = netlink.HANDLE_MIN_INGRESS
	}
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: FilterHandle, Priority: s.Priority, Protocol: unix.ETH_P_ALL},
		Name:        s.Program, DirectAction: true,
	}
}

// Hook is a side of the devices of one network namespace.
type Hook struct {
	Side
	TCX       bool // the program is attached by TCX
	Handle    *netlink.Handle
	Namespace *os.File // of Handle; nil is the one of the calling thread
}

// Find returns the ID of the program on the device, which may be of a previous agent; 0 is none.
func (h *Hook) Find(index int) (id uint32, err error) {
	if !h.TCX {
		return FilterAt(h.Handle, h.filter(index))
	}
	err = h.inNamespace(func() error {
		id, err = h.findTCX(index)
		return err
	})
	return id, err
}

// inNamespace is for BPF calls, which take indexes of devices to be of their thread's namespace.
func (h *Hook) inNamespace(f func() error) error {
	if h.Namespace == nil {
		return f()
	}
	return netns.In(int(h.Namespace.Fd()), f)
}

func (h *Hook) findTCX(index int) (uint32, error) {
	there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.attachType()})
	if err != nil {
		return 0, fmt.Errorf("list TCX programs of link %d: %w", index, err)
	}
	for _, p := range there.Programs {
		if isProgram(p.ID, h.Program) {
			return uint32(p.ID), nil
		}
	}
	return 0, nil
}

// isProgram is false for a program that ends meanwhile.
func isProgram(id ebpf.ProgramID, name string) bool {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer program.Close()
	info, err := program.Info()
	return err == nil && info.Name == name
}

// FilterAt is the ID of the program in the place of our filter on its device; 0 is none.
func FilterAt(handle *netlink.Handle, ours *netlink.BpfFilter) (id uint32, err error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(nl.LinkAt(ours.LinkIndex), ours.Parent) })
	for _, filter := range filters {
		bpf, ok := filter.(*netlink.BpfFilter)
		if ok && bpf.Handle == ours.Handle && bpf.Priority == ours.Priority {
			return uint32(bpf.Id), nil
		}
	}
	return 0, nl.IgnoreAbsent(err)
}

// Attach puts the program of that ID in its place among others' programs, or in place of a previous agent's without a
// gap.
func (h *Hook) Attach(index int, program *ebpf.Program, id uint32) (err error) {
	if h.TCX {
		err = h.inNamespace(func() error { return h.attachTCX(index, program) })
	} else {
		err = h.attachFilter(index, program, id)
	}
	if err != nil {
		return fmt.Errorf("attach %s to link %d: %w", h.Program, index, err)
	}
	return nil
}

func (h *Hook) attachTCX(index int, program *ebpf.Program) error {
	previous, err := h.open(index)
	if err != nil {
		return err
	}
	anchor := link.Tail()
	switch {
	case previous != nil:
		defer previous.Close()
		anchor = link.ReplaceProgram(previous)
	case h.First:
		anchor = link.Head()
	}
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: program, Attach: h.attachType(), Anchor: anchor})
}

// open returns the program that findTCX finds, or nil. The caller closes it.
func (h *Hook) open(index int) (*ebpf.Program, error) {
	id, err := h.findTCX(index)
	if id == 0 || err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromID(ebpf.ProgramID(id))
}

// errIngress is returned for a device with the qdisc ingress, which excludes clsact. It runs all filters at the
// ingress, also those for the egress.
var errIngress = errors.New("another program has put the qdisc ingress there: replace it by clsact")

func (h *Hook) attachFilter(index int, program *ebpf.Program, id uint32) error {
	err := h.Handle.QdiscAdd(nl.Clsact(index))
	if errors.Is(err, unix.EEXIST) {
		var qdiscs []netlink.Qdisc
		qdiscs, err = nl.Dump(func() ([]netlink.Qdisc, error) { return h.Handle.QdiscList(nl.LinkAt(index)) })
		if err == nil && !slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" }) {
			err = errIngress
		}
	}
	if err != nil {
		return fmt.Errorf("add clsact: %w", err)
	}
	filter := h.filter(index)
	filter.Fd, filter.Id = program.FD(), int(id)
	return h.Handle.FilterReplace(filter)
}

// Detach takes the program off, of whatever agent it is. That there is none is no error. It leaves the qdisc clsact:
// others may have filters on it, or add them at any time.
func (h *Hook) Detach(index int) (err error) {
	if h.TCX {
		err = h.inNamespace(func() error { return h.detachTCX(index) })
	} else {
		err = nl.IgnoreAbsent(h.Handle.FilterDel(h.filter(index)))
	}
	if err != nil && !errors.Is(err, unix.ENOENT) { // else it went meanwhile
		return fmt.Errorf("detach %s from link %d: %w", h.Program, index, err)
	}
	return nil
}

func (h *Hook) detachTCX(index int) error {
	program, err := h.open(index)
	if program == nil || err != nil {
		return err
	}
	defer program.Close()
	return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: program, Attach: h.attachType()})
}
