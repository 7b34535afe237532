package hostport

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/conntrack"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/nodeaddr"
)

// cleaner deletes the tracked UDP connections to a port whose meaning has changed. A client that sends on from
// the same port would go where it went before, as long as it does not pause for the timeout. Connections of TCP end
// otherwise, and ipam deletes the connections of a released address.
//
// Failures are in the log: a port that works for all new clients is no reason to refuse a pod.
type cleaner struct {
	namespace *os.File
	log       *slog.Logger
	addresses nodeaddr.Source
	once      sync.Once
}

func newCleaner(namespace *os.File, log *slog.Logger) *cleaner {
	return &cleaner{namespace: namespace, log: log, addresses: nodeaddr.NewKernel()}
}

// atAttach deletes what was to the node and not to where the ports lead now.
func (c *cleaner) atAttach(ports map[port]netip.AddrPort) {
	c.clean(ports, func(p port, to netip.AddrPort, conn conntrack.Connection, ofNode map[netip.Addr]string) bool {
		destination := conn.Original.Destination.Addr()
		_, isNode := ofNode[destination]
		return conn.Reply.Source != to && (p.host == destination || p.host.IsUnspecified() && (isNode || destination.IsLoopback()))
	})
}

// atDetach deletes what was to the pod.
func (c *cleaner) atDetach(ports map[port]netip.AddrPort) {
	c.clean(ports, func(_ port, to netip.AddrPort, conn conntrack.Connection, _ map[netip.Addr]string) bool {
		return conn.Reply.Source == to
	})
}

// matcher reports whether a connection to the port has to go. ofNode are the addresses of the node, but for
// 127.0.0.0/8.
type matcher func(p port, to netip.AddrPort, conn conntrack.Connection, ofNode map[netip.Addr]string) bool

func (c *cleaner) clean(ports map[port]netip.AddrPort, matches matcher) {
	var numbers []uint16
	families := map[int]bool{}
	for p := range ports {
		if p.protocol == unix.IPPROTO_UDP {
			numbers = append(numbers, p.number)
			families[nl.FamilyOf(p.host)] = true
		}
	}
	if len(numbers) == 0 {
		return
	}
	slices.Sort(numbers)
	filter := uint16(0) // for several ports: they are listed once
	if numbers = slices.Compact(numbers); len(numbers) == 1 {
		filter = numbers[0]
	}
	err := netns.In(int(c.namespace.Fd()), func() error {
		ofNode, err := c.addresses.List()
		if err != nil {
			return err
		}
		socket, err := conntrack.Open(0)
		if err != nil {
			return err
		}
		for family := range families {
			_, deleteErr := socket.DeleteOpened(uint8(family), unix.IPPROTO_UDP, filter, func(conn conntrack.Connection) bool {
				destination := conn.Original.Destination
				for p, to := range ports {
					if p.protocol == unix.IPPROTO_UDP && p.number == destination.Port() && nl.FamilyOf(p.host) == family && matches(p, to, conn, ofNode) {
						return true
					}
				}
				return false
			})
			err = errors.Join(err, deleteErr)
		}
		return errors.Join(err, socket.Close())
	})
	switch {
	case conntrack.IsUnsupported(err):
		c.once.Do(func() {
			c.log.Info("the kernel does not let tracked connections be deleted; after a change of a host port of UDP its clients must pause", "error", err)
		})
	case err != nil:
		c.log.Warn("tracked connections of host ports of UDP are not deleted", "error", err)
	}
}
