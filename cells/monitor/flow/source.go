package flow

import (
	"net/netip"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/conntrack"
)

// Source is where events of the datapath come from.
type Source interface {
	// Read calls each with what there is since the last call, oldest first, until each returns false. It does not wait.
	// The event is only good during the call. lost counts the events that the datapath could not tell, since the source
	// was opened.
	Read(each func(*abi.FlowEvent) bool) (lost uint64, err error)
}

// Endpoints are this node's endpoints.
type Endpoints interface {
	Get(ref endpoint.Ref) (endpoint.Endpoint, error)
}

// Policies says what the policies decide.
type Policies interface {
	Evaluate(from, to netip.Addr, protocol model.Protocol, port uint16) engine.Verdict
	// RemotePod returns the pod of another node that has an address.
	RemotePod(addr netip.Addr) (model.Endpoint, bool)
}

// Names are the DNS names that pods have asked for.
type Names interface {
	// NamesOf returns a few names of an address that the endpoint has got with answers, the last one first.
	NamesOf(endpoint uint16, addr netip.Addr) []string
}

// Translations are the connections that the node's stack has seen.
type Translations interface {
	// Translate finds the connection that a packet belongs to, in either direction; false when there is none. answers says
	// that the packet is an answer, which matters for an echo alone. An error means that it is unknown.
	Translate(protocol uint8, packet conntrack.Tuple, answers bool) (c conntrack.Connection, found bool, err error)
}
