package redirect

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHalf: the client's node takes the lower half of the ports, unless the client has a port of it; any other node the
// upper half, whatever the client's port.
func TestHalf(t *testing.T) {
	for _, row := range []struct {
		port    uint16
		isLocal bool
		want    int
	}{
		{40001, true, 0}, {40001, false, 1}, {61005, true, 1}, {61005, false, 1}, {65000, true, 0}, {65000, false, 1},
	} {
		client := Client{netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), row.port), row.isLocal}
		if got := half(client); got != row.want {
			t.Errorf("port %d of a client of this node: %v: half %d, want %d", row.port, row.isLocal, got, row.want)
		}
	}
}

// TestOnAnyPort: the ports that are tried are the proxy's, each once, of the half, and not the client's own.
func TestOnAnyPort(t *testing.T) {
	client := netip.MustParseAddrPort("10.0.0.1:61005")
	for half := range 2 {
		own := false
		for range 1000 {
			tried := map[uint16]bool{}
			err := onAnyPort(client, half, func(at netip.AddrPort) error {
				if at.Addr() != client.Addr() || !isInHalf(at.Port(), half) || tried[at.Port()] {
					t.Fatalf("half %d: %s", half, at)
				}
				own = own || at.Port() == client.Port()
				tried[at.Port()] = true
				return unix.EADDRINUSE
			})
			if !errors.Is(err, ErrNoPort) || len(tried) < maxTries-1 {
				t.Fatalf("half %d: %v after %d ports", half, err, len(tried))
			}
		}
		if own {
			t.Errorf("half %d: the client's own port is tried", half)
		}
	}
}
