package redirect

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnAnyPort: the ports that are tried are the proxy's, each once, of the first half for clients of this node and else of the second one, and never of the half that
// the client's is of.
func TestOnAnyPort(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	half := func(port uint16) int { return (int(port) - firstPort) / ports }
	for client, want := range map[Client]int{
		{netip.AddrPortFrom(addr, 40000), true}: 0, {netip.AddrPortFrom(addr, 40000), false}: 1,
		{netip.AddrPortFrom(addr, 60999), true}: 0, {netip.AddrPortFrom(addr, 60999), false}: 1,
		{netip.AddrPortFrom(addr, firstPort), true}: 1, {netip.AddrPortFrom(addr, firstPort), false}: 1,
		{netip.AddrPortFrom(addr, firstPort+ports-1), true}: 1, {netip.AddrPortFrom(addr, firstPort+ports), true}: 0,
		{netip.AddrPortFrom(addr, firstPort+ports), false}: 0, {netip.AddrPortFrom(addr, 65535), false}: 0,
	} {
		tried := map[uint16]bool{}
		err := onAnyPort(client, func(at netip.AddrPort) error {
			if at.Addr() != addr || at.Port() < firstPort || half(at.Port()) != want || tried[at.Port()] {
				t.Errorf("client %v gets %s, want another port of half %d", client, at, want)
			}
			tried[at.Port()] = true
			return unix.EADDRINUSE
		})
		if !errors.Is(err, ErrNoPort) || len(tried) != maxTries {
			t.Errorf("client %v: %v after %d ports", client, err, len(tried))
		}
	}
}
