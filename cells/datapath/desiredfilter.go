package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// desiredFilter returns the pods with an egress policy, and the host ends of all pods. The uplinks have to be added.
func desiredFilter(e *engine.Engine, locals map[string]policy.Local) (d hostfilter.Desired) {
	known := map[engine.TableID]hostfilter.Pod{} // without a link
	node, _ := e.Endpoint(policy.HostKey)
	classOf := map[netip.Addr]engine.ClassID{}
	for _, addr := range node.Addresses {
		classOf[addr.Unmap()] = e.End(addr).Class
	}
	classes := slices.Compact(slices.Sorted(maps.Values(classOf)))
	if len(classes) == 0 {
		classes = []engine.ClassID{engine.FixedClass(model.Host)}
	}
	for id, local := range locals {
		if local.Link == 0 {
			continue // no host end yet, or no device of ours
		}
		d.Enforced = append(d.Enforced, local.Link)
		table, ok := e.Table(id, model.Egress)
		if !ok || !table.Restricts() {
			continue
		}
		pod, ok := known[table.ID()]
		if !ok {
			pod = podRows(table, classes)
			known[table.ID()] = pod
		}
		pod.Link = local.Link
		d.Pods = append(d.Pods, pod)
	}
	groups := joinClasses(classes, known)
	d.Groups = map[netip.Addr]hostfilter.Group{}
	for addr, class := range classOf {
		if group, ok := groups[class]; ok {
			d.Groups[addr] = group
		}
	}
	slices.Sort(d.Enforced)
	slices.SortFunc(d.Pods, func(x, y hostfilter.Pod) int { return x.Link - y.Link })
	return d
}

// joinClasses makes one group of classes for which all tables have the same rows. It returns the groups of the classes
// for which a table has rows of its own.
func joinClasses(classes []engine.ClassID, pods map[engine.TableID]hostfilter.Pod) map[engine.ClassID]hostfilter.Group {
	tables := slices.Sorted(maps.Keys(pods))
	first, groups := map[string]hostfilter.Group{}, map[engine.ClassID]hostfilter.Group{}
	for _, class := range classes {
		own, all := hostfilter.Group(class), ""
		for _, id := range tables {
			if rows, ok := pods[id].OfGroup[own]; ok {
				all += fmt.Sprintln(id, rows)
			}
		}
		if all == "" {
			continue
		}
		if _, ok := first[all]; !ok {
			first[all] = own
		}
		if groups[class] = first[all]; first[all] != own {
			for _, pod := range pods {
				delete(pod.OfGroup, own)
			}
		}
	}
	return groups
}

// podRows returns a table's rows for the node's addresses. An address of the node that the policies do not know yet, or
// a broadcast, gets what all known ones get.
func podRows(table engine.Table, classes []engine.ClassID) hostfilter.Pod {
	pod := hostfilter.Pod{Rows: hostRows(table, classes)}
	if len(classes) == 1 {
		return pod
	}
	for _, class := range classes {
		if rows := hostRows(table, []engine.ClassID{class}); !slices.Equal(rows, pod.Rows) {
			if pod.OfGroup == nil {
				pod.OfGroup = map[hostfilter.Group][]hostfilter.Row{}
			}
			pod.OfGroup[hostfilter.Group(class)] = rows
		}
	}
	return pod
}

// hostRows returns the rows of ports that a table allows for all of the classes. A port with layer 7 rules is denied:
// packets to the proxy pass before.
func hostRows(table engine.Table, hosts []engine.ClassID) (list []hostfilter.Row) {
	var sets [][]engine.Row
	for _, class := range hosts {
		sets = append(sets, table.RowsOf(class))
	}
	allows := func(protocol model.Protocol, port uint16) bool {
		return !slices.ContainsFunc(sets, func(rows []engine.Row) bool {
			decision, ok := engine.Lookup(rows, protocol, port)
			return !ok || decision.Value() != engine.ValueAllow
		})
	}
	const gre = 47 // stands for all protocols without ports and types
	rest := allows(gre, 0)
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		starts := spanStarts(sets, protocol)
		// While the kernel replaces ranges, a packet finds the row for all ports: it denies unless all are allowed.
		all := !slices.ContainsFunc(starts, func(port uint16) bool { return !allows(protocol, port) })
		if all != rest {
			list = append(list, hostfilter.Row{Protocol: uint8(protocol), Last: 65535, Allow: all})
		}
		for i := 0; i < len(starts); {
			first := starts[i]
			allow := allows(protocol, first)
			for i++; i < len(starts) && allows(protocol, starts[i]) == allow; i++ {
			}
			if allow && !all {
				last := uint16(65535)
				if i < len(starts) {
					last = starts[i] - 1
				}
				list = append(list, hostfilter.Row{Protocol: uint8(protocol), First: first, Last: last, Allow: true})
			}
		}
	}
	for _, protocol := range []model.Protocol{model.ICMP, model.ICMPv6} {
		echo, others := allows(protocol, protocol.EchoRequest()), allows(protocol, model.OtherTypes)
		if others != rest {
			list = append(list, hostfilter.Row{Protocol: uint8(protocol), Last: 65535, Allow: others})
		}
		if echo != others {
			list = append(list, hostfilter.Row{Protocol: uint8(protocol), First: protocol.EchoRequest(), Last: protocol.EchoRequest(), Allow: echo})
		}
	}
	return append(list, hostfilter.Row{Last: 65535, Allow: rest})
}

// spanStarts returns the ports at which the verdict may change, 0 first.
func spanStarts(sets [][]engine.Row, protocol model.Protocol) []uint16 {
	starts := []uint16{0}
	for _, rows := range sets {
		for _, r := range rows {
			if r.Protocol != protocol || r.Bits == 0 {
				continue
			}
			starts = append(starts, r.Port)
			if end := r.Port | 0xffff>>r.Bits; end < 65535 {
				starts = append(starts, end+1)
			}
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts)
}
