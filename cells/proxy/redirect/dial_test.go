package redirect

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnAnyPort: the ports that are tried are the proxy's, each once, and never of the half that the client's is of.
func TestOnAnyPort(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	half := func(port uint16) int { return (int(port) - firstPort) / ports }
	for client, want := range map[uint16]int{40000: 0, 60999: 0, firstPort: 1, firstPort + ports - 1: 1, firstPort + ports: 0, 65535: 0} {
		tried := map[uint16]bool{}
		err := onAnyPort(netip.AddrPortFrom(addr, client), func(at netip.AddrPort) error {
			if at.Addr() != addr || at.Port() < firstPort || half(at.Port()) != want || tried[at.Port()] {
				t.Errorf("a client with port %d gets %s, want another port of half %d", client, at, want)
			}
			tried[at.Port()] = true
			return unix.EADDRINUSE
		})
		if !errors.Is(err, ErrNoPort) || len(tried) != maxTries {
			t.Errorf("a client with port %d: %v after %d ports", client, err, len(tried))
		}
	}
}
