package datapath

import (
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

// TestEntryLeased is who may speak DHCP with the node.
func TestEntryLeased(t *testing.T) {
	for external, want := range map[bool]uint16{true: abi.EndpointDHCP, false: 0} {
		ep := endpoint.Endpoint{Addresses: endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.1")}}
		ep.Spec.ExternalIPAM = external
		if got := endpointValue(entryOf(ep)).Flags; got != want {
			t.Errorf("another IPAM's %v: flags %d, want %d", external, got, want)
		}
	}
}
