package endpointtest

import (
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Endpoint returns endpoint number i of a node as the manager passes it to the first step: with a number and a valid
// Spec, and without addresses or a link.
func Endpoint(i int) endpoint.Endpoint {
	name := fmt.Sprintf("c%d", i)
	return endpoint.Endpoint{
		ID: uint16(i),
		Spec: endpoint.Spec{
			Attachment: endpoint.Attachment{ContainerID: name, IfName: "eth0"}, Network: "porin", NetNS: "/run/netns/" + name,
			Pod:   endpoint.Pod{Namespace: "default", Name: "pod-" + name, UID: "uid-" + name},
			Began: time.Duration(i) * time.Second,
		},
		State: endpoint.Regenerating, Created: time.Unix(int64(i), 0).UTC(),
	}
}

// withAddresses returns the endpoint with one address of each family, by its number.
func withAddresses(ep endpoint.Endpoint) endpoint.Endpoint {
	high, low := byte(ep.ID>>8), byte(ep.ID)
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, high, low})
	ep.Addresses.IPv6 = netip.AddrFrom16([16]byte{0xfd, 14: high, 15: low})
	return ep
}
