package proxy

import (
	"net/netip"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
)

// Kernel is what the datapath knows of redirected connections, and of the policies for them.
type Kernel interface {
	redirect.Link
	// Opener returns who has opened a redirected connection that has these ends for the proxy; [ErrNoOpener] when it is
	// not known. For TCP it removes what the kernel has noted of the connection: a second call returns [ErrNoOpener]. For
	// UDP that stays, as more datagrams may follow.
	Opener(protocol model.Protocol, client, server netip.AddrPort) (Opener, error)
	// EndpointAt returns the ID of the endpoint of this node that has an address, or 0.
	EndpointAt(addr netip.Addr) (uint16, error)
	// Verdict returns what the row says that decides about a connection: see [policy.Enforcer].
	Verdict(q policy.Question) (uint32, error)
	// Version returns the generation of an endpoint's ID, which changes when another endpoint gets the ID, and the
	// revision of the endpoint's policies, which changes whenever a verdict may.
	Version(id uint16) (generation, revision uint32, err error)
	// AddressGeneration returns a number that changes whenever an endpoint of this node gets an address.
	AddressGeneration() (uint32, error)
}

// Opener is who has opened a connection.
type Opener struct {
	Source   netip.Addr // before the node has translated it
	Endpoint uint16     // ID of the endpoint of this node that it is; 0 for any other
	FromNode bool       // the node itself has sent it
}

// ErrNoOpener is returned for a connection that was not redirected, or that is older than its endpoint.
var ErrNoOpener = fault.New(fault.NotFound, "nothing is known of who has opened the connection")
