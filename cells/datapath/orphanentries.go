package datapath

import (
	"context"
	"fmt"
	"strconv"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/doctor"
)

func (c *Checker) orphanEntries(all mapEntries, o owners) (findings []doctor.Finding) {
	for addr, value := range all.byAddr {
		if o.addrs[addr.IP()] {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Endpoints, addr.IP().String()), entryValue(value),
			func(o owners) bool { return o.addrs[addr.IP()] },
			func(m *pinnedMaps) error { return deleteSame(m.endpoints, addr, value) }))
	}
	for index, value := range all.byLink {
		if o.hasIndex(index) {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Links, strconv.Itoa(int(index))), entryValue(value),
			func(o owners) bool { return o.hasIndex(index) },
			func(m *pinnedMaps) error { return deleteSame(m.links, index, value) }))
	}
	for id := range all.counters {
		if o.ids[id] {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Traffic, strconv.Itoa(int(id))), "counters",
			func(o owners) bool { return o.ids[id] },
			func(m *pinnedMaps) error { return gone(m.traffic.Delete(id)) }))
	}
	return findings
}

func (c *Checker) orphanEntry(subject, value string, owned func(owners) bool, remove func(*pinnedMaps) error) doctor.Finding {
	return doctor.Finding{
		Kind: mapEntryOrphan, Subject: subject, Detail: fmt.Sprintf("%s: %s, and there is no such endpoint", subject, value),
		Repair: func(context.Context) error {
			puts := c.datapath.maps.puts.Load() // before the look: who comes after it is noticed
			if owned(c.owners()) {
				return nil
			}
			return c.datapath.maps.unlessPut(puts, remove)
		},
	}
}
