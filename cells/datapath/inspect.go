package datapath

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// Inspection is what the kernel has of Porin's.
type Inspection struct {
	Programs    []PinnedProgram  `json:"programs"`
	Maps        []PinnedMap      `json:"maps"`
	Attachments []ProgramAtALink `json:"attachments"`
}

// PinnedProgram is a program below the BPF root.
type PinnedProgram struct {
	Name   string    `json:"name"`
	Digest string    `json:"digest"` // of the object and configuration it was loaded from
	ID     uint32    `json:"id"`
	Tag    string    `json:"tag"` // the kernel's digest of its instructions
	Loaded time.Time `json:"loaded,omitzero"`
}

// PinnedMap is a map below the BPF root.
type PinnedMap struct {
	Name       string `json:"name"`
	ID         uint32 `json:"id"`
	Type       string `json:"type"`
	Entries    int    `json:"entries"`
	MaxEntries uint32 `json:"maxEntries"`
}

// ProgramAtALink is a filter on a host end.
type ProgramAtALink struct {
	IfName    string `json:"ifname"`
	IfIndex   int    `json:"ifindex"`
	Direction string `json:"direction"`
	Name      string `json:"name"`
	ProgramID uint32 `json:"programID"`
}

// Inspect reads, without an agent, what is pinned below the BPF root and what is attached to the host ends in the
// network namespace of the calling thread. A root that is not there has nothing.
func Inspect(bpfRoot string) (Inspection, error) {
	cfg := Config{BPFRoot: bpfRoot}
	programs, programsErr := inspectPrograms(cfg.programsDir())
	maps, mapsErr := inspectMaps(cfg.mapsDir())
	attachments, attachmentsErr := inspectLinks()
	return Inspection{programs, maps, attachments}, errors.Join(programsErr, mapsErr, attachmentsErr)
}

func inspectLinks() (attachments []ProgramAtALink, err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	ends, err := link.HostEnds(handle)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ends, func(a, b netlink.Link) int { return cmp.Compare(a.Attrs().Index, b.Attrs().Index) })
	for _, end := range ends {
		for _, side := range []struct {
			name   string
			parent uint32
		}{{"ingress", netlink.HANDLE_MIN_INGRESS}, {"egress", netlink.HANDLE_MIN_EGRESS}} {
			filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(end, side.parent) })
			if err != nil {
				continue // the link has no clsact, or went
			}
			for _, filter := range filters {
				at := ProgramAtALink{IfName: end.Attrs().Name, IfIndex: end.Attrs().Index, Direction: side.name}
				if bpf, ok := filter.(*netlink.BpfFilter); ok {
					at.Name, at.ProgramID = bpf.Name, uint32(bpf.Id)
				}
				attachments = append(attachments, at)
			}
		}
	}
	return attachments, nil
}
