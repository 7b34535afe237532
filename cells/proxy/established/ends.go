package established

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/conntrack"
)

// connection is who has opened a connection, and to whom, after the node's translation; and the ends of the proxy's socket, if it goes through the proxy.
type connection struct{ from, to, proxyLocal, proxyRemote netip.AddrPort }

// origin is who has opened a pod's connection, as far as its sockets say.
type origin int

// The origins. A pod has accepted what has a port at which it listens. It has opened what has another one of those that the kernel chooses; what has neither it may have
// opened from a port of its choice, or accepted before it closed the listening socket.
const (
	unknownOrigin origin = iota
	accepted
	openedHere
)

// portRange has the ephemeral ports: those that the kernel chooses for connections which a pod opens (ip_local_port_range).
type portRange struct{ first, last uint16 }

// ephemeralPorts reads them for the network namespace of the thread.
func ephemeralPorts() (e portRange) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // of both families
	if err == nil {
		_, err = fmt.Sscan(string(text), &e.first, &e.last)
	}
	if err != nil {
		return portRange{32768, 60999} // the kernel's default
	}
	return e
}

func (e portRange) has(port uint16) bool { return e.first <= port && port <= e.last }

// originOf expects the ports at which the pod listens, sorted.
func originOf(s socket, listening []uint16, ephemeral portRange) origin {
	if _, accepts := slices.BinarySearch(listening, s.local.Port()); accepts {
		return accepted
	}
	if ephemeral.has(s.local.Port()) {
		return openedHere
	}
	return unknownOrigin
}

// possibleEnds returns those that a pod's socket may have. What connection tracking does not know is not translated.
func possibleEnds(tracking *conntrack.Socket, s socket, by origin) []connection {
	if tracking != nil {
		c, found, err := tracking.Get(unix.IPPROTO_TCP, conntrack.Tuple{Source: s.local, Destination: s.remote}, false)
		switch {
		case err != nil || !found:
		case c.Original.Source == s.local: // the proxy has accepted it
			return []connection{{c.Original.Source, c.Reply.Source, c.Reply.Source, c.Reply.Destination}}
		default: // the proxy has opened it
			return []connection{{c.Original.Source, c.Reply.Source, c.Original.Source, c.Original.Destination}}
		}
	}
	asServer, asClient := connection{s.remote, s.local, s.remote, s.local}, connection{s.local, s.remote, s.remote, s.local}
	switch by {
	case accepted:
		return []connection{asServer}
	case openedHere:
		return []connection{asClient}
	default:
		return []connection{asClient, asServer}
	}
}
