package endpoints

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpoint"
)

// published is an endpoint as it is to be in a group.
type published struct {
	addresses []netip.Addr
	pod       string
	labels    cluster.LabelSet
	ports     []cluster.PublishedPort
	size      int // in bytes, about
}

// maxGroupBytes bounds a group: a record of the store has at most 64 KiB.
const maxGroupBytes = 48 << 10

// publishedOf returns false for an endpoint that other nodes need not know, or whose labels are too large for a group.
// With joins, the others know the labels of namespaces themselves.
func publishedOf(ep endpoint.Endpoint, joins bool) (p published, ok bool, err error) {
	p.addresses = ep.Addresses.List()
	if ep.Spec.Kind == endpoint.KindHealth { // its addresses are in the node's record
		return p, false, nil
	}
	if len(p.addresses) == 0 || ep.State == endpoint.Disconnecting || ep.State == endpoint.Disconnected {
		return p, false, nil
	}
	metadata, err := endpoint.DecodeMetadata(ep.Metadata)
	if err != nil || metadata.Unknown {
		return p, false, err
	}
	metadata = metadata.ForNamespace(ep.Spec.Pod.Namespace)
	p.pod = ep.Spec.Pod.Name
	p.labels = cluster.LabelSet{Namespace: ep.Spec.Pod.Namespace, NamespaceLabels: metadata.NamespaceLabels, Labels: metadata.Labels}
	if joins {
		p.labels.NamespaceLabels = nil
	}
	for _, port := range metadata.NamedPorts {
		p.ports = append(p.ports, cluster.PublishedPort{Name: port.Name, Protocol: port.Protocol, Port: port.Port})
	}
	p.size = 256 + 2*len(ep.Metadata)
	return p, p.size <= maxGroupBytes, nil
}

// plan returns the groups of a node that are to be written: of slots that change or are new, and without endpoints for
// slots that are to be deleted. A group has at most groupSize endpoints, and an endpoint stays in its slot. Slots that
// endpoints move to come first, so that other nodes know these all the time.
func plan(node cluster.NodeID, groupSize int, stored map[int]cluster.EndpointGroup, all []published) []cluster.EndpointGroup {
	slotOf := map[netip.Addr]int{}
	for slot, g := range stored {
		for _, ep := range g.Endpoints {
			slotOf[ep.Addresses[0]] = slot
		}
	}
	slots, sizes := map[int][]published{}, map[int]int{}
	put := func(slot int, p published) bool {
		if len(slots[slot]) == groupSize || sizes[slot]+p.size > maxGroupBytes {
			return false
		}
		slots[slot] = append(slots[slot], p)
		sizes[slot] += p.size
		return true
	}
	var moving []published
	for _, p := range all {
		if slot, ok := slotOf[p.addresses[0]]; !ok || !put(slot, p) {
			moving = append(moving, p)
		}
	}
	next, gains := 0, map[int]bool{}
	for _, p := range moving {
		slot := next
		for ; !put(slot, p); slot++ {
		}
		gains[slot] = true
		if len(slots[slot]) == groupSize && slot == next {
			next++
		}
	}
	var changes []cluster.EndpointGroup
	first := func(a, b int) int {
		switch {
		case gains[a] == gains[b]:
			return cmp.Compare(a, b)
		case gains[a]:
			return -1
		}
		return 1
	}
	for _, slot := range slices.SortedFunc(maps.Keys(slots), first) {
		g, now := groupOf(node, slot, slots[slot]), stored[slot]
		g.Version = now.Version
		if !slices.EqualFunc(g.LabelSets, now.LabelSets, equalLabels) || !reflect.DeepEqual(g.Endpoints, now.Endpoints) {
			changes = append(changes, g)
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(stored)) {
		if len(slots[slot]) == 0 {
			g := stored[slot]
			g.LabelSets, g.Endpoints = nil, nil
			changes = append(changes, g)
		}
	}
	return changes
}

// groupOf is the same for the same endpoints in any order.
func groupOf(node cluster.NodeID, slot int, all []published) cluster.EndpointGroup {
	slices.SortFunc(all, func(a, b published) int { return a.addresses[0].Compare(b.addresses[0]) })
	g := cluster.EndpointGroup{Node: node, Slot: slot}
	for _, p := range all {
		i := slices.IndexFunc(g.LabelSets, func(l cluster.LabelSet) bool { return equalLabels(l, p.labels) })
		if i < 0 {
			i = len(g.LabelSets)
			g.LabelSets = append(g.LabelSets, p.labels)
		}
		g.Endpoints = append(g.Endpoints, cluster.PublishedEndpoint{Addresses: p.addresses, Pod: p.pod, LabelSet: i, NamedPorts: p.ports})
	}
	return g
}

func equalLabels(a, b cluster.LabelSet) bool {
	return a.Namespace == b.Namespace && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.NamespaceLabels, b.NamespaceLabels)
}
