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
	// Opener returns who has opened a redirected connection that has these ends for the proxy; [ErrNoOpener] when it is not known.
	Opener(protocol model.Protocol, client, server netip.AddrPort) (Opener, error)
	// EndpointAt returns the ID of the endpoint of this node that has an address, or 0.
	EndpointAt(addr netip.Addr) (uint16, error)
	// Verdict returns what the row says that decides about a connection: see [policy.Enforcer].
	Verdict(q policy.Question) (uint32, error)
	// Version changes when a verdict for the endpoint may have changed, and when the ID is another endpoint's.
	Version(id uint16) (uint64, error)
}

// Opener is who has opened a connection.
type Opener struct {
	Source   netip.Addr // before the node has translated it
	Endpoint uint16     // ID of the endpoint of this node that it is; 0 for any other
	SentHere bool       // the node itself has sent it
	ToNode   bool       // the server has an address of the node itself
}

// ErrNoOpener is returned for a connection that was not redirected, or that is older than its endpoint.
var ErrNoOpener = fault.New(fault.NotFound, "nothing is known of who has opened the connection")
