package ipam

import (
	"context"
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
)

// flawed are the differences in the allocator's records.
func (c *Checker) flawed(flaws []Flaw) (findings []doctor.Finding) {
	for _, f := range flaws {
		finding := doctor.Finding{Repair: func(context.Context) error { c.Books.Mend(f); return nil }}
		switch f.Kind {
		case Bare:
			finding.Kind, finding.Subject = ownerBare, fmt.Sprintf("%s, allocation %d", f.Owner, f.Seq)
			finding.Detail = "it is on record, and no address is"
		case Ownerless:
			finding.Kind, finding.Subject = ownerless, f.Address.String()
			finding.Detail = "it is in use, and no owner is on record"
		case Unmarked:
			finding.Kind, finding.Subject = unmarked, fmt.Sprintf("%s of %s", f.Address, f.Owner)
			finding.Detail = "its prefix or block has it as free"
		}
		findings = append(findings, finding)
	}
	return findings
}

// outsiders are the endpoints' addresses that lie in no range. That is no disagreement.
func outsiders(before, after map[Handle]endpointmanager.Endpoint, outside map[netip.Addr]bool) (findings []doctor.Finding) {
	for handle, ep := range before {
		if ep.State != endpointmanager.Ready || after[handle] != ep || ep.Spec.ExternalIPAM {
			continue
		}
		for _, addr := range ep.Addresses.List() {
			if outside[addr] {
				findings = append(findings, doctor.Finding{
					Kind: addressOutside, Endpoint: ep.Spec.Attachment.String(), Subject: fmt.Sprintf("%s of endpoint %d", addr, ep.ID),
					Detail: "it lies in no prefix or block of this node; the endpoint keeps it until it ends",
				})
			}
		}
	}
	return findings
}

// counts tells how much was looked at.
func counts(endpoints int, audit Audit, uses []Use) []doctor.Compared {
	all := []doctor.Compared{
		{What: "endpoints", Count: endpoints}, {What: "owners", Count: audit.Owners}, {What: "addresses in use", Count: audit.Addresses},
		{What: "own ranges", Count: audit.Ranges},
	}
	sorts := map[string]int{}
	for _, use := range uses {
		sorts[use.What]++
	}
	for _, sort := range []string{routeSort, neighSort, addrSort} {
		all = append(all, doctor.Compared{What: sort, Count: sorts[sort]})
	}
	return all
}
