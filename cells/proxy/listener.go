package proxy

import (
	"context"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/redirect"
)

// Listener serves the connections that are redirected to the proxy, by the rules of their rows: [BuiltIn], or another
// program that is controlled in its place, such as Envoy by xDS. The [Proxy] keeps the way of packets to it.
//
//	Prepare (acknowledged) --> Serve, when the way is open --> Prepare, Release, Changed, CloseEndpoint ... --> Stop
//
// Its methods may be called concurrently. One that never acknowledges rules holds up only who waits for these rules.
type Listener interface {
	// The rules come before the first sockets. Prepare returns when they are acknowledged: only then rows have their
	// numbers.
	policy.Proxy
	EndpointCloser
	// Serve has it accept from the sockets, instead of previous ones. It does not block: connections wait in the sockets.
	// The proxy closes them when they are not needed any more, and before Stop; copies, as for another process
	// ([redirect.Listeners.Sockets]), are the listener's to close. After an error it uses none of them.
	Serve(sockets *redirect.Listeners) error
	// Stop lets requests that are being served end, within ctx and for as long as the listener lets them, and ends all
	// connections.
	Stop(ctx context.Context) error
	// Connections returns how many are open, and how many there were so far. The way is kept while there are any.
	Connections() (open int, accepted uint64)
}

// Drainer is a [Listener] that can drain its connections before it stops.
type Drainer interface {
	// Drain tells clients to use new connections for their next requests, goes on accepting, and returns when the open
	// connections have ended. A connection that lasts longer than the listener allows is closed. When ctx ends it returns
	// at once.
	Drain(ctx context.Context)
}
