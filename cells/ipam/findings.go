package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
)

func (c *Checker) ofEndpoints(before, after map[allocator.Handle]endpoint.Endpoint, allocations []allocator.Allocation) (findings []doctor.Finding) {
	owners, has, reserved := map[netip.Addr]allocator.Handle{}, map[allocator.Handle]allocator.Allocation{}, map[endpoint.Addresses]bool{}
	for _, a := range allocations {
		has[a.Owner], reserved[a.Addresses] = a, a.IsPermanent()
		for _, addr := range a.Addresses.List() {
			owners[addr] = a.Owner
		}
	}
	for handle, ep := range before {
		if ep.State != endpoint.Ready || after[handle] != ep || reserved[ep.Addresses] {
			continue
		}
		if a, ok := has[handle]; ok && a.Addresses != ep.Addresses {
			findings = append(findings, doctor.Finding{
				Kind: addressDiffers, Endpoint: ep.Spec.Attachment.String(), Subject: fmt.Sprintf("endpoint %d", ep.ID),
				Detail: fmt.Sprintf("it has %v, and for the allocator %v", ep.Addresses.List(), a.Addresses.List()),
			})
			continue
		}
		for _, addr := range ep.Addresses.List() {
			if owner := owners[addr]; owner != handle {
				findings = append(findings, c.foreignAddress(ep, addr, owner))
			}
		}
	}
	return findings
}

// foreignAddress finds an endpoint with an address that has another owner, or none.
func (c *Checker) foreignAddress(ep endpoint.Endpoint, addr netip.Addr, owner allocator.Handle) doctor.Finding {
	f := doctor.Finding{
		Kind: addressMissing, Endpoint: ep.Spec.Attachment.String(), Subject: fmt.Sprintf("%s of endpoint %d", addr, ep.ID),
		Detail: "it is nobody's for the allocator",
		Repair: func(ctx context.Context) error { return c.Repairer.Repair(ctx, ep.Spec.Attachment) },
	}
	if owner != "" {
		f.Kind, f.Detail, f.Repair = addressDiffers, fmt.Sprintf("for the allocator it is that of %s", owner), nil
	}
	return f
}

// orphans leaves out owners that are no attachments, and reservations: whoever else asked for an address gives it back
// himself.
func (c *Checker) orphans(before, after map[allocator.Handle]endpoint.Endpoint, allocations []allocator.Allocation) (findings []doctor.Finding) {
	for _, a := range allocations {
		attachment, ok := a.Owner.Attachment()
		_, was := before[a.Owner]
		_, is := after[a.Owner]
		if !ok || was || is || a.Kept || a.Reserved {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: addressOrphan, Endpoint: attachment.String(), Subject: fmt.Sprintf("%v of %s", a.Addresses.List(), a.Owner),
			Detail: fmt.Sprintf("in use since %s, and there is no such endpoint", a.Since.UTC().Format("2006-01-02 15:04:05Z")),
			Repair: func(context.Context) error { return c.release(attachment, a) },
		})
	}
	return findings
}

// release looks again. An endpoint that begins after the look asks for its addresses, and that is noticed.
func (c *Checker) release(attachment endpoint.Attachment, a allocator.Allocation) error {
	_, err := c.Endpoints.Get(endpoint.ByAttachment(attachment))
	if errors.Is(err, endpointmanager.ErrNotFound) {
		c.Allocator.ReleaseListed(a)
		return nil
	}
	return err
}

// foreign are addresses that the kernel uses, although they are free, and the node's own ones with an owner besides.
func (c *Checker) foreign(uses []Use) (findings []doctor.Finding) {
	which := map[netip.Addr][]string{}
	for _, use := range uses {
		if managed, owner := c.Allocator.Lookup(use.Addr); managed && (owner == "" || use.Own && owner != TunnelOwner) {
			which[use.Addr] = append(which[use.Addr], use.Which)
		}
	}
	for addr, texts := range which {
		_, owner := c.Allocator.Lookup(addr)
		slices.Sort(texts)
		findings = append(findings, doctor.Finding{
			Kind: addressForeign, Subject: addr.String(),
			Detail: strings.Join(texts, ", ") + "; for the allocator it is " + ownerText(owner),
		})
	}
	return findings
}

func ownerText(owner allocator.Handle) string {
	if owner == "" {
		return "nobody's"
	}
	return "that of " + owner.String()
}
