package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/ipam/allocator"
)

// Config says which addresses this node owns.
type Config struct {
	// Mode is one of the modes below.
	Mode string
	// PodCIDRs are prefixes of either family, in the order in which they are used up. Only mode pod-cidr has them.
	PodCIDRs []string
	// FromNode takes the prefixes from the node's object at the Kubernetes API: see [NodeCIDRs]. PodCIDRs is empty
	// then.
	FromNode bool
	// Quarantine is how long a released address is kept back in mode pod-cidr; in the others each pool says it.
	Quarantine time.Duration
	// NodePool is the pool of who names none, if its namespace has none either; "" is [allocator.DefaultPool]. It and
	// NamespacePools, which has pools by namespace, are of mode multi-pool.
	NodePool       string
	NamespacePools map[string]string
	// ReservationsPath is the file of the reservations, on a disk. It is made when there is one. "" keeps none over a
	// restart.
	ReservationsPath string
}

// The modes: where addresses come from.
const (
	ModePodCIDR   = "pod-cidr"   // the node's own prefixes are the one pool there is
	ModeMultiPool = "multi-pool" // the blocks of the cluster's pools that the node owns: see [allocator.Pools]
	ModeDelegated = "delegated"  // another IPAM plugin; none is given out here
)

// DefaultConfig is what the agent runs with unless told otherwise. It owns no address yet.
func DefaultConfig() Config { return Config{Mode: ModePodCIDR, Quarantine: 30 * time.Second} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "ipam-mode", c.Mode, "where addresses come from: pod-cidr, multi-pool or delegated")
	fs.StringSliceVar(&c.PodCIDRs, "ipam-pod-cidr", c.PodCIDRs, "`prefix` of this node's pods, of either family; repeated or comma separated. With Kubernetes the default is the Node's podCIDRs")
	fs.StringVar(&c.NodePool, "ipam-node-pool", c.NodePool, "`pool` of pods for which neither they nor their network or namespace name one; empty: \"default\" (multi-pool)")
	fs.StringToStringVar(&c.NamespacePools, "ipam-namespace-pool", c.NamespacePools, "pools of pods for which neither they nor their network name one, as `namespace=pool,...` (multi-pool)")
	fs.Lookup("ipam-namespace-pool").DefValue = "" // which is how --help shows that there are none
	fs.DurationVar(&c.Quarantine, "ipam-quarantine", c.Quarantine, "how long a released address is not given out")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	switch c.Mode {
	case ModeMultiPool, ModeDelegated:
		if len(c.PodCIDRs) > 0 {
			errs = append(errs, fmt.Errorf("ipam-pod-cidr: mode %s takes none", c.Mode))
		}
	default:
		if c.Mode != ModePodCIDR {
			errs = append(errs, fmt.Errorf("ipam-mode %q: want %s, %s or %s", c.Mode, ModePodCIDR, ModeMultiPool, ModeDelegated))
		}
		_, err := c.prefixes()
		errs = append(errs, err)
	}
	if c.Quarantine < 0 || c.Quarantine > allocator.MaxQuarantine {
		errs = append(errs, fmt.Errorf("ipam-quarantine %s: want 0 to %s", c.Quarantine, allocator.MaxQuarantine))
	}
	return errors.Join(append(errs, c.checkChoice())...)
}

// Prefixes are PodCIDRs of a valid configuration; none outside pod-cidr.
func (c Config) Prefixes() []netip.Prefix {
	if c.Mode != ModePodCIDR {
		return nil
	}
	prefixes, _ := c.prefixes()
	return prefixes
}

// prefixes parses PodCIDRs.
func (c Config) prefixes() ([]netip.Prefix, error) {
	var (
		prefixes []netip.Prefix
		errs     []error
	)
	if len(c.PodCIDRs) == 0 && !c.FromNode {
		errs = append(errs, errors.New("ipam-pod-cidr: want one prefix or more, such as 10.244.1.0/24"))
	}
	for _, text := range c.PodCIDRs {
		text = strings.TrimSpace(text) // behind a comma
		prefix, err := parsePrefix(text)
		if err == nil {
			err = overlap(prefix, prefixes)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ipam-pod-cidr %q: %w", text, err))
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, errors.Join(errs...)
}

func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, errors.New("want a prefix such as 10.244.1.0/24 or fd00:10:244:1::/64")
	}
	if prefix != prefix.Masked() {
		return prefix, fmt.Errorf("it has bits behind the prefix: want %s", prefix.Masked())
	}
	if prefix.Addr().Is4In6() {
		return prefix, errors.New("write an IPv4 prefix as IPv4")
	}
	if addr := prefix.Addr(); addr.IsMulticast() || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
		return prefix, errors.New("not a prefix of unicast addresses that are routed")
	}
	return prefix, allocator.CheckSubnet(prefix)
}

func overlap(prefix netip.Prefix, others []netip.Prefix) error {
	for _, other := range others {
		if prefix.Overlaps(other) {
			return fmt.Errorf("it overlaps %s", other)
		}
	}
	return nil
}
