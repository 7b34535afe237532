package tunnel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// hook is a place of the device where one of the programs runs: by TCX, or before Linux 6.6 as a filter on clsact. Both
// last as long as the device. Other programs there run, too: to_uplink before to_tunnel, and from_uplink behind
// from_tunnel.
type hook struct {
	program string // its name
	tcx     ebpf.AttachType
	parent  uint32 // of the filter
	first   bool   // before the programs of others by TCX; else behind them
}

// filterHandle is our filters' handle, and filterPriority puts them behind to_uplink's and before from_uplink's.
const (
	filterHandle   = 0x706f7269
	filterPriority = 2
)

// attached returns the ID of our program at the hook; 0 is none. It must be in the device's namespace, as attach must.
func (t *Tunnel) attached(h hook, index int) (ebpf.ProgramID, error) {
	if !t.hasTCX {
		return t.filterAt(h, index)
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.tcx})
	if err != nil {
		return 0, fmt.Errorf("list the programs on %s: %w", Device, err)
	}
	for _, p := range there.Programs {
		if nameOf(p.ID) == h.program {
			return p.ID, nil
		}
	}
	return 0, nil
}

// nameOf is empty for a program that ends meanwhile.
func nameOf(id ebpf.ProgramID) string {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// attach puts the program there, in place of a previous one without a gap. It reports whether it was not there.
func (t *Tunnel) attach(h hook, index int, p *ebpf.Program) (changed bool, err error) {
	info, err := p.Info()
	if err != nil {
		return false, err
	}
	id, _ := info.ID()
	previous, err := t.attached(h, index)
	if previous == id || err != nil {
		return false, err
	}
	if t.hasTCX {
		err = attachTCX(h, index, p, previous)
	} else {
		err = t.attachFilter(h, index, p, id)
	}
	if err != nil {
		return false, fmt.Errorf("attach %s to %s: %w", h.program, Device, err)
	}
	return true, nil
}

func attachTCX(h hook, index int, p *ebpf.Program, previous ebpf.ProgramID) error {
	anchor := link.Tail()
	if h.first {
		anchor = link.Head()
	}
	if previous != 0 {
		old, err := ebpf.NewProgramFromID(previous)
		if err != nil {
			return err
		}
		defer old.Close()
		anchor = link.ReplaceProgram(old)
	}
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: p, Attach: h.tcx, Anchor: anchor})
}

func (t *Tunnel) filterAt(h hook, index int) (ebpf.ProgramID, error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return t.handle.FilterList(nl.LinkAt(index), h.parent) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // there is no clsact
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list the filters of %s: %w", Device, err)
	}
	for _, f := range filters {
		if bpf, ok := f.(*netlink.BpfFilter); ok && bpf.Handle == filterHandle && bpf.Priority == filterPriority {
			return ebpf.ProgramID(bpf.Id), nil
		}
	}
	return 0, nil
}

func (t *Tunnel) attachFilter(h hook, index int, p *ebpf.Program, id ebpf.ProgramID) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact",
	}
	if err := t.handle.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return t.handle.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: h.parent, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
		Fd:          p.FD(), Name: h.program, DirectAction: true, Id: int(id),
	})
}
