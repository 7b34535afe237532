package ipam

import (
	"log/slog"
	"maps"
	"net/netip"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nodeaddr"
)

// NewFollower returns what tells the allocator which addresses the node has, and the log what is new of them. An
// allocation waits for nothing.
func NewFollower(source nodeaddr.Source, a *allocator.Allocator, log *slog.Logger) *nodeaddr.Follower {
	return nodeaddr.NewFollower("ipam-follow-node-addresses", source, a.Covers, func(ofNode map[netip.Addr]string) {
		maps.DeleteFunc(ofNode, func(addr netip.Addr, ifname string) bool { return ifname == link.TunnelDevice }) // they are given to it
		for _, new := range a.SetNodeAddresses(ofNode) {
			if new.Owner != "" {
				log.Error("the node has an address of an endpoint: remove it from the interface, or delete the container",
					"ip", new.Addr, "ifname", new.IfName, "owner", new.Owner)
				continue
			}
			log.Info("address of the node lies in a prefix of its pods, and is given to none of them", "ip", new.Addr, "ifname", new.IfName)
		}
	}, log)
}
