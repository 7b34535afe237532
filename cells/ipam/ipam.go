package ipam

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"

	"go.uber.org/fx"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nodeaddr"
)

// ErrDelegated is returned in mode delegated when an address of ours is asked for.
var ErrDelegated = fault.New(fault.Invalid, "addresses come from another IPAM plugin, and none was given")

// New returns the allocator of a node. In mode pod-cidr it has the pool of the node's prefixes; in mode multi-pool
// whoever manages the node's blocks adds pools. Reservations are kept in the store; nil keeps them in memory only.
func New(cfg Config, reservations allocator.ReservationStore) (*allocator.Allocator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := allocator.New(reservations)
	if cfg.Mode == ModePodCIDR && !cfg.FromNode {
		if err := addPrefixes(a.Pools(), cfg); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// sourceParts are what a source is made of. Only in mode multi-pool the node can get more addresses.
type sourceParts struct {
	fx.In
	Config    Config
	Allocator *allocator.Allocator
	Refiller  allocator.Refiller
}

func newSource(p sourceParts) *allocator.Source { return NewSource(p.Config, p.Allocator, p.Refiller) }

// NewSource returns what gives out the addresses of a node. Only in mode multi-pool there is a refiller; else it is
// nil.
func NewSource(cfg Config, a *allocator.Allocator, r allocator.Refiller) *allocator.Source {
	if cfg.Mode == ModeDelegated {
		r = delegatedRefiller{}
	}
	return allocator.NewSource(a, r)
}

// delegatedRefiller has nothing: another IPAM has the addresses.
type delegatedRefiller struct{}

// Refill implements [allocator.Refiller].
func (delegatedRefiller) Refill(context.Context, string, ...netip.Addr) error { return ErrDelegated }

// addPrefixes makes the one pool of mode pod-cidr.
func addPrefixes(pools allocator.Pools, cfg Config) error {
	prefixes, err := cfg.prefixes()
	if err != nil {
		return err
	}
	settings := allocator.Settings{Quarantine: cfg.Quarantine}
	for _, prefix := range prefixes {
		if err := pools.AddSubnet(allocator.DefaultPool, prefix); err != nil {
			return fmt.Errorf("pool %s: %w", allocator.DefaultPool, err)
		}
		settings.IPv4 = settings.IPv4 || prefix.Addr().Is4()
		settings.IPv6 = settings.IPv6 || prefix.Addr().Is6()
	}
	pools.Configure(allocator.DefaultPool, settings)
	return nil
}

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
