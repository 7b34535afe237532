package proxy

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/redirect"
)

// TestDialClient: a query has the port of its own client, and not the port of the query for which its connection was
// decided.
func TestDialClient(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	decided := &connection{client: netip.AddrPortFrom(addr, 40000), opener: Opener{Source: addr, Endpoint: 1}}
	q := dnsproxy.Query{Client: netip.AddrPortFrom(addr, 62000), Caller: decided}
	if got, want := dialClient(q), (redirect.Client{AddrPort: q.Client, IsLocal: true}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
