package datapath

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"porin.dev/porin/internal/rtnl"
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
	conn, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	links, err := hostEnds(conn)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	for _, link := range links {
		for _, direction := range []rtnl.Direction{rtnl.Ingress, rtnl.Egress} {
			filters, err := conn.Filters(link.Index, direction)
			if err != nil {
				continue // the link has no clsact, or went
			}
			for _, f := range filters {
				attachments = append(attachments, ProgramAtALink{link.Name, link.Index, direction.String(), f.Name, f.ProgramID})
			}
		}
	}
	return attachments, nil
}
