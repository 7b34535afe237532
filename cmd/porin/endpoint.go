package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func (s *session) endpointTable(w io.Writer, ep v1.Endpoint) {
	row(w, "Endpoint:", fmt.Sprintf("%d, %s", ep.ID, ep.State))
	row(w, "Pod:", podName(ep.Pod))
	row(w, "Container:", ep.ContainerID)
	row(w, "Network:", ep.Network)
	row(w, "Namespace:", ep.NetNS)
	row(w, "In the container:", interfaceLine(ep.Container))
	row(w, "On the node:", interfaceLine(ep.Host))
	row(w, "IPv4:", addressLine(ep.Addresses.IPv4, ep.ExternalIPAM))
	row(w, "IPv6:", addressLine(ep.Addresses.IPv6, ep.ExternalIPAM))
	row(w, "Pool:", ep.Pool)
	row(w, "Age:", s.age(ep.Created))
	if ep.Traffic != nil {
		trafficRows(w, *ep.Traffic)
	}
}

func trafficRows(w io.Writer, t v1.Traffic) {
	row(w, "From the pod:", counterLine(t.FromPod))
	row(w, "To the pod:", counterLine(t.ToPod))
	if len(t.Drops) == 0 {
		row(w, "Dropped:", "none")
	}
	for _, reason := range slices.Sorted(maps.Keys(t.Drops)) {
		row(w, "Dropped:", fmt.Sprintf("%s, %s", count(t.Drops[reason], "packet"), reason))
	}
}

func counterLine(c v1.Counter) string {
	return fmt.Sprintf("%s, %s", count(c.Packets, "packet"), count(c.Bytes, "byte"))
}

func interfaceLine(i v1.Interface) string {
	if i.Index == 0 {
		return fmt.Sprintf("%s, %s", i.Name, i.MAC)
	}
	return fmt.Sprintf("%s (%d), %s", i.Name, i.Index, i.MAC)
}

func addressLine(addr netip.Addr, external bool) string {
	if addr.IsValid() && external {
		return addr.String() + ", from another IPAM"
	}
	return address(addr)
}

// address is "" for none.
func address(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

func podName(p v1.Pod) string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// shortAttachment has the shortID of its container.
func shortAttachment(attachment string) string {
	containerID, ifname, ok := strings.Cut(attachment, ":")
	if !ok {
		return shortID(attachment)
	}
	return shortID(containerID) + ":" + ifname
}

// shortID is as much of a container ID as people compare.
func shortID(id string) string { return id[:min(len(id), 12)] }
