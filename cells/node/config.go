package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/cluster"
)

// Config says how other nodes reach this one.
type Config struct {
	Name string // of this node
	// Addresses of the node, at most one of each family. A family without one has the address of the default route's
	// interface.
	Addresses []string
	// Routing is a [cluster.RoutingMode].
	Routing string
	// VXLANPort is the UDP port of tunnels, the same one on all nodes.
	VXLANPort int
	// BPFRoot has the folder of the tunnel's programs, and Dir the file of its addresses; "" keeps none over a boot.
	BPFRoot, Dir string
	// Version is the agent's version, for the node's record.
	Version string
}

// DefaultConfig is what a node runs with unless told otherwise.
func DefaultConfig() Config { return Config{Routing: string(cluster.RoutingNative), VXLANPort: 8472} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Addresses, "node-addresses", c.Addresses, "`addresses` at which other nodes reach this one, one of each family; default: the addresses of the default route's interface")
	fs.StringVar(&c.Routing, "routing", c.Routing, "how other nodes reach pods of this one: native (a route by the node's address, on one link), vxlan (a tunnel over any network) or external (the network knows)")
	fs.IntVar(&c.VXLANPort, "vxlan-port", c.VXLANPort, "UDP `port` of the tunnels between nodes, the same one on all of them")
}

// Validate reports every fault.
func (c Config) Validate() error {
	_, err := c.addresses()
	if c.Name == "" {
		err = errors.Join(err, errors.New("no name of the node"))
	}
	switch cluster.RoutingMode(c.Routing) {
	case cluster.RoutingNative, cluster.RoutingVXLAN, cluster.RoutingExternal:
	default:
		err = errors.Join(err, fmt.Errorf("routing %q: want %s, %s or %s", c.Routing, cluster.RoutingNative, cluster.RoutingVXLAN, cluster.RoutingExternal))
	}
	if c.VXLANPort < 1 || c.VXLANPort > 65535 {
		err = errors.Join(err, fmt.Errorf("vxlan-port %d: want a port from 1 to 65535", c.VXLANPort))
	}
	return err
}

// addresses parses Addresses.
func (c Config) addresses() (addrs []netip.Addr, err error) {
	families := map[cluster.Family]bool{}
	for _, text := range c.Addresses {
		text = strings.TrimSpace(text) // behind a comma
		addr, parseErr := netip.ParseAddr(text)
		switch {
		case parseErr != nil || !addr.IsGlobalUnicast() || addr.Is4In6():
			err = errors.Join(err, fmt.Errorf("node-addresses %q: want an address such as 192.0.2.1 or 2001:db8::1", text))
		case families[cluster.FamilyOf(addr)]:
			err = errors.Join(err, fmt.Errorf("node-addresses %q: want one address of each family", text))
		default:
			families[cluster.FamilyOf(addr)] = true
			addrs = append(addrs, addr)
		}
	}
	return addrs, err
}
