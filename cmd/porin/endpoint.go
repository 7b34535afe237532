package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

func endpointList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Endpoints(ctx, s.network)
	return s.show(list, err, func(w io.Writer) {
		row(w, "ID", "STATE", "POD", "CONTAINER", "INTERFACE", "IPV4", "IPV6", "AGE")
		for _, ep := range list {
			row(w, ep.ID, ep.State, ownerName(ep), shortID(ep.ContainerID), ep.IfName,
				address(ep.Addresses.IPv4), address(ep.Addresses.IPv6), s.age(ep.Created))
		}
	})
}

const refHint = "porin endpoint list shows those of this node; ask about another node's pods there"

func endpointGet(ctx context.Context, s *session, args []string) error {
	ep, err := s.client.Endpoint(ctx, args[0])
	return s.show(ep, withHint(err, refHint), func(w io.Writer) { s.endpointTable(w, ep) })
}

func endpointLabel(ctx context.Context, s *session, args []string) error {
	change, err := parseLabels(args[1:])
	if err != nil {
		return usageOf([]string{"endpoint", "label"}, err.Error())
	}
	ep, err := s.client.Endpoint(ctx, args[0])
	if err != nil {
		return withHint(err, refHint)
	}
	patch := v1.EndpointPatch{}
	if s.ofNamespace {
		patch.NamespaceLabels = changed(ep.NamespaceLabels, change)
	} else {
		patch.Labels = changed(ep.Labels, change)
	}
	ref := args[0]
	if ep.ContainerID != "" { // not the command line of a pod that has come in its place meanwhile
		ref = "cni-attachment-id:" + ep.ContainerID + ":" + ep.IfName
	}
	ep, err = s.client.UpdateEndpoint(ctx, ref, patch)
	return s.show(ep, err, func(w io.Writer) {
		row(w, "Labels:", labelsText(ep.Labels))
		row(w, "Of the namespace:", labelsText(ep.NamespaceLabels))
	})
}

// parseLabels has nil for a label that is to be removed.
func parseLabels(texts []string) (map[string]*string, error) {
	change := map[string]*string{}
	for _, text := range texts {
		key, value, set := strings.Cut(text, "=")
		if !set {
			var removed bool
			if key, removed = strings.CutSuffix(text, "-"); !removed {
				return nil, fmt.Errorf("%q: want KEY=VALUE, or KEY- to remove a label", text)
			}
		}
		if _, twice := change[key]; key == "" || twice {
			return nil, fmt.Errorf("%q: want each key once", text)
		}
		if change[key] = nil; set {
			change[key] = &value
		}
	}
	return change, nil
}

// changed is not nil, which would stand for no change.
func changed(labels map[string]string, change map[string]*string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	for key, value := range change {
		if value == nil {
			delete(all, key)
		} else {
			all[key] = *value
		}
	}
	return all
}

func endpointDelete(ctx context.Context, s *session, args []string) error {
	var result v1.DeleteResult
	var err error
	switch containerID, isContainer := strings.CutPrefix(args[0], "container-id:"); {
	case isContainer && s.force:
		err = usageError{"--force ends one endpoint, and not all of a container"}
	case s.force:
		result, err = s.client.ForceDeleteEndpoint(ctx, args[0])
	case isContainer:
		result, err = s.client.DeleteContainer(ctx, v1.DeleteRequest{ContainerID: containerID})
	default:
		result, err = s.client.DeleteEndpoint(ctx, args[0])
	}
	if err != nil {
		return withHint(err, refHint)
	}
	err = s.print(result, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, plural(result.Deleted, "endpoint")+" deleted")
		for _, part := range result.GivenUp {
			_, _ = fmt.Fprintln(w, "given up:", printable(part))
		}
	})
	return cmp.Or(err, partsLeft(result.Errors, result.Details))
}

// endpointRefs are the numbers, as bash breaks words at the colons of the other references.
func endpointRefs(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Endpoints(ctx, "")
	for _, ep := range list {
		about := joinNonEmpty(ownerName(ep), shortID(ep.ContainerID), ep.IfName)
		all = append(all, cobra.CompletionWithDesc(strconv.Itoa(int(ep.ID)), printable(about)))
	}
	return all
}

func (s *session) endpointTable(w io.Writer, ep v1.Endpoint) {
	row(w, "Endpoint:", fmt.Sprintf("%d, %s", ep.ID, ep.State))
	row(w, "Pod:", ownerName(ep))
	row(w, "Container:", ep.ContainerID)
	row(w, "Network:", ep.Network)
	row(w, "Namespace:", ep.NetNS)
	row(w, "In the container:", interfaceLine(ep.Container))
	row(w, "On the node:", interfaceLine(ep.Host))
	row(w, "IPv4:", addressLine(ep.Addresses.IPv4, ep.ExternalIPAM))
	row(w, "IPv6:", addressLine(ep.Addresses.IPv6, ep.ExternalIPAM))
	row(w, "Pool:", ep.Pool)
	for _, p := range ep.PortMappings {
		row(w, "Host port:", p.String())
	}
	if ep.NoMasquerade {
		row(w, "Masquerade:", "no, it keeps its address outside of the cluster, too")
	}
	if text := bandwidthText(ep.Bandwidth); text != "" {
		row(w, "Bandwidth:", text)
	}
	row(w, "Age:", s.age(ep.Created))
	if len(ep.Labels) > 0 {
		row(w, "Labels:", labelsText(ep.Labels))
	}
	if len(ep.NamespaceLabels) > 0 {
		row(w, "Of the namespace:", labelsText(ep.NamespaceLabels))
	}
	for _, p := range ep.NamedPorts {
		row(w, "Named port:", fmt.Sprintf("%s, %s %d", p.Name, p.Protocol, p.Port))
	}
	if ep.Audit {
		row(w, "Audit:", "no policy is in force for it: what they would deny passes")
	}
	if ep.Policy != nil {
		row(w, "Policy:", endpointPolicyText(*ep.Policy))
	}
	if t := ep.Traffic; t != nil {
		row(w, "From the pod:", counterLine(t.FromPod))
		row(w, "To the pod:", counterLine(t.ToPod))
		if len(t.Drops) == 0 {
			row(w, "Dropped:", "none")
		}
		for _, reason := range slices.Sorted(maps.Keys(t.Drops)) {
			row(w, "Dropped:", fmt.Sprintf("%s, %s", plural(t.Drops[reason], "packet"), reason))
		}
	}
}

// bandwidthText is "ingress 10 Mbit/s, egress 1.5 Gbit/s", or what of it is limited.
func bandwidthText(b v1.Bandwidth) string {
	var texts []string
	for _, limit := range []struct {
		direction string
		rate      uint64
	}{{"ingress", b.IngressRate}, {"egress", b.EgressRate}} {
		if limit.rate == 0 {
			continue
		}
		rate, units := float64(limit.rate), []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}
		for rate >= 1000 && len(units) > 1 {
			rate, units = rate/1000, units[1:]
		}
		texts = append(texts, fmt.Sprintf("%s %s %s", limit.direction, strconv.FormatFloat(rate, 'f', -1, 64), units[0]))
	}
	return strings.Join(texts, ", ")
}

func endpointPolicyText(p v1.EndpointPolicy) string {
	text := "nothing is restricted"
	switch {
	case p.Egress && p.Ingress:
		text = "egress and ingress are restricted"
	case p.Egress:
		text = "egress is restricted"
	case p.Ingress:
		text = "ingress is restricted"
	}
	if p.Audit {
		text += "; more would be, if nothing was in audit"
	}
	if p.Error != "" {
		text += ", but the datapath may have what was before: " + p.Error
	}
	return text
}

func counterLine(c v1.Counter) string {
	return fmt.Sprintf("%s, %s", plural(c.Packets, "packet"), plural(c.Bytes, "byte"))
}

// interfaceLine is what is known of the interface; "" for nothing.
func interfaceLine(i v1.Interface) string {
	var known []string
	switch {
	case i.Name == "" && i.Index != 0:
		known = append(known, fmt.Sprintf("index %d", i.Index))
	case i.Index != 0:
		known = append(known, fmt.Sprintf("%s (%d)", i.Name, i.Index))
	case i.Name != "":
		known = append(known, i.Name)
	}
	if i.MAC != (v1.MAC{}) {
		known = append(known, i.MAC.String())
	}
	return strings.Join(known, ", ")
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

// ownerName is the pod, or what the agent made the endpoint for itself.
func ownerName(ep v1.Endpoint) string {
	if ep.Kind != "" {
		return "(" + ep.Kind + ")"
	}
	return podName(ep.Pod)
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
