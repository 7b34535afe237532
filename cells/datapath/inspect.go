package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/tchook"
)

// Inspection is what the kernel has of Porin's.
type Inspection struct {
	Programs    []loader.PinnedProgram `json:"programs"`
	Maps        []loader.PinnedMap     `json:"maps"`
	Attachments []ProgramAtALink       `json:"attachments"`
}

// ProgramAtALink is a filter on a host end, or our program on another device.
type ProgramAtALink struct {
	IfName    string `json:"ifname"`
	IfIndex   int    `json:"ifindex"`
	Direction string `json:"direction"`
	Name      string `json:"name"`
	ProgramID uint32 `json:"programID"`
}

// Inspect reads, without an agent, the pins below the BPF root and the programs on the devices of the
// network namespace of the calling thread. A root that is not there has nothing.
func Inspect(bpfRoot string) (Inspection, error) {
	programs, maps, pinsErr := loader.Inspect(bpfRoot)
	attachments, attachmentsErr := inspectLinks()
	return Inspection{programs, maps, attachments}, errors.Join(pinsErr, attachmentsErr)
}

// inspectLinks lists the filters of all host ends, and our program on other devices. It leaves out links that go
// meanwhile.
func inspectLinks() (attachments []ProgramAtALink, err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := nl.Dump(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	slices.SortFunc(links, func(a, b netlink.Link) int { return cmp.Compare(a.Attrs().Index, b.Attrs().Index) })
	tcx := loader.HasTCX()
	for _, end := range links {
		for _, side := range []struct {
			name   string
			parent uint32
		}{{"ingress", netlink.HANDLE_MIN_INGRESS}, {"egress", netlink.HANDLE_MIN_EGRESS}} {
			filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(end, side.parent) })
			if err != nil {
				continue // the link has no clsact, or went
			}
			for _, filter := range filters {
				if !link.IsHostEnd(end) && filter.Attrs().Handle != tchook.FilterHandle {
					continue // another program's
				}
				at := ProgramAtALink{IfName: end.Attrs().Name, IfIndex: end.Attrs().Index, Direction: side.name}
				if program, ok := filter.(*netlink.BpfFilter); ok {
					at.Name, at.ProgramID = program.Name, uint32(program.Id)
				}
				attachments = append(attachments, at)
			}
		}
		if !tcx || link.IsHostEnd(end) {
			continue
		}
		for _, side := range []tchook.Side{uplinkIngress.Side, uplinkEgress.Side} {
			hook := tchook.Hook{Side: side, TCX: true}
			if id, err := hook.Find(end.Attrs().Index); err == nil && id != 0 {
				attachments = append(attachments, ProgramAtALink{end.Attrs().Name, end.Attrs().Index, side.Direction(), side.Program, id})
			}
		}
	}
	return attachments, nil
}

// Detached is a program that [DetachUplinks] has taken off a device.
type Detached struct {
	Program, Device string
	Clsact          bool // it was a filter on the qdisc clsact, which is still there
}

// DetachUplinks takes the programs of any agent off the devices of the calling thread's network namespace, other than
// host ends. It is for programs that run while the agent does not.
func DetachUplinks() (detached []Detached, err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := nl.Dump(handle.LinkList)
	hooks := []*tchook.Hook{{Side: uplinkIngress.Side, Handle: handle}, {Side: uplinkEgress.Side, Handle: handle}}
	if loader.HasTCX() {
		hooks = append(hooks, &tchook.Hook{Side: uplinkIngress.Side, TCX: true}, &tchook.Hook{Side: uplinkEgress.Side, TCX: true})
	}
	for _, hook := range hooks {
		for _, l := range links {
			if link.IsHostEnd(l) {
				continue
			}
			id, hookErr := hook.Find(l.Attrs().Index)
			if id != 0 && hookErr == nil {
				if hookErr = hook.Detach(l.Attrs().Index); hookErr == nil {
					detached = append(detached, Detached{hook.Program, l.Attrs().Name, !hook.TCX})
				}
			}
			err = errors.Join(err, hookErr)
		}
	}
	return detached, err
}
