package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Config says which addresses this node owns.
type Config struct {
	// Mode is "pod-cidr": the prefixes of PodCIDRs are one pool.
	Mode string
	// PodCIDRs are prefixes of either family, in the order in which they are used up.
	PodCIDRs []string
	// Quarantine is how long a released address belongs to nobody.
	Quarantine time.Duration
}

// ModePodCIDR is the mode in which the node's own CIDRs are the one pool there is.
const ModePodCIDR = "pod-cidr"

// DefaultConfig is what the agent runs with unless told otherwise. It owns no address yet.
func DefaultConfig() Config { return Config{Mode: ModePodCIDR, Quarantine: 30 * time.Second} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "ipam-mode", c.Mode, "where addresses come from: pod-cidr")
	fs.StringSliceVar(&c.PodCIDRs, "ipam-pod-cidr", c.PodCIDRs, "`prefix` that pods of this node are numbered from, of either family; repeated or comma separated")
	fs.DurationVar(&c.Quarantine, "ipam-quarantine", c.Quarantine, "how long a released address is given to nobody")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.Mode != ModePodCIDR {
		errs = append(errs, fmt.Errorf("ipam-mode %q: want %s", c.Mode, ModePodCIDR))
	}
	if c.Quarantine < 0 {
		errs = append(errs, fmt.Errorf("ipam-quarantine %s: want 0 or more", c.Quarantine))
	}
	_, err := c.prefixes()
	return errors.Join(append(errs, err)...)
}

// prefixes parses PodCIDRs.
func (c Config) prefixes() ([]netip.Prefix, error) {
	var (
		prefixes []netip.Prefix
		errs     []error
	)
	if len(c.PodCIDRs) == 0 {
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
	_, err = newRange(prefix, 0)
	return prefix, err
}

func overlap(prefix netip.Prefix, others []netip.Prefix) error {
	for _, other := range others {
		if prefix.Overlaps(other) {
			return fmt.Errorf("it overlaps %s", other)
		}
	}
	return nil
}
