package nodecheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/testutil"
)

// answers is what the agent says.
type answers struct {
	endpoints []v1.Endpoint
	usage     v1.IPAM
	status    v1.Status
	doctor    v1.Doctor
}

func (c *Checker) ask() (a answers, err error) {
	ctx := context.Background()
	if a.endpoints, err = c.api.Endpoints(ctx, ""); err != nil {
		return a, err
	}
	if a.usage, err = c.api.IPAM(ctx); err != nil {
		return a, err
	}
	if a.status, err = c.api.Status(ctx); err != nil {
		return a, err
	}
	err = (&testutil.Agent{Node: c.node}).Get("/v1/doctor", &a.doctor)
	return a, err
}

// endpointItems are the agent's endpoints, without optional whole ones.
func (a answers) endpointItems(want Want) (items []Item) {
	for _, ep := range a.endpoints {
		if ep.State != "ready" || !slices.Contains(want.Maybe, attachment(ep)) {
			items = append(items, endpointItem(attachment(ep), ep.State, ep.Addresses.IPv4, ep.Addresses.IPv6))
		}
	}
	return items
}

func attachment(ep v1.Endpoint) string { return ep.ContainerID + ":" + ep.IfName }

// addressesDue are the addresses that the endpoints have.
func (a answers) addressesDue() (items []Item) {
	for _, ep := range a.endpoints {
		for _, addr := range addresses(ep) {
			items = append(items, addressItem(addr, attachment(ep)))
		}
	}
	if a.hasTunnel() {
		for _, addr := range a.status.Network.Tunnel.Addresses {
			items = append(items, addressItem(addr, string(ipam.TunnelOwner)))
		}
	}
	return items
}

// hasTunnel reports whether the node receives by a tunnel.
func (a answers) hasTunnel() bool {
	return a.status.Network.Tunnel != nil && a.status.Network.Tunnel.Port != 0
}

// addressItems are the addresses that the allocator has given out.
func (a answers) addressItems() (items []Item) {
	for _, given := range a.usage.Allocations {
		items = append(items, addressItem(given.Address, given.Owner))
	}
	return items
}

func addressItem(addr netip.Addr, owner string) Item {
	return Item{"address", fmt.Sprintf("%s of %s", addr, owner)}
}

func addresses(ep v1.Endpoint) (list []netip.Addr) {
	for _, addr := range []netip.Addr{ep.Addresses.IPv4, ep.Addresses.IPv6} {
		if addr.IsValid() {
			list = append(list, addr)
		}
	}
	return list
}

// doctorFindings are the agent's own: it must see nothing wrong where nothing is.
func (a answers) doctorFindings() (findings []Finding) {
	for _, f := range a.doctor.Findings {
		findings = append(findings, Finding{Item{"doctor's " + f.Kind, f.Subject + ": " + f.Detail}, "left"})
	}
	for _, text := range a.doctor.Errors {
		findings = append(findings, Finding{Item{"doctor's error", text}, "left"})
	}
	return findings
}
