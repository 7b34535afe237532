package masquerade

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"porin.dev/porin/internal/nft"
)

// The values of [Config.Families].
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
	Both = "both"
	None = "none"
	// Auto is Both where the agent knows the other nodes of the cluster, and else None: a node that does not would
	// masquerade what goes to their pods. Whoever builds a [Table] decides which: see [Config.Resolved].
	Auto = "auto"
)

// Resolved replaces Auto.
func (c Config) Resolved(knowsNodes bool) Config {
	if c.Families == Auto {
		c.Families = None
		if knowsNodes {
			c.Families = Both
		}
	}
	return c
}

// Config says what is masqueraded.
type Config struct {
	Families string // a value above
	// Exclude are destinations to which pods keep their addresses, besides the cluster's.
	Exclude []string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config { return Config{Families: Auto} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Families, "masquerade", c.Families, "traffic of pods that leaves the cluster gets the node's address: ipv4, ipv6, both, none, or auto, which is both where nodes share a store, and none where the agent does not know the other nodes")
	fs.StringSliceVar(&c.Exclude, "masquerade-exclude", c.Exclude, "`prefix` of destinations outside of the cluster that see the pods' addresses, of either family; repeated or comma separated")
}

// Validate reports every fault.
func (c Config) Validate() error {
	_, err := c.excluded()
	switch c.Families {
	case IPv4, IPv6, Both, None, Auto:
		return err
	}
	return errors.Join(fmt.Errorf("masquerade %q: want %s, %s, %s, %s or %s", c.Families, IPv4, IPv6, Both, None, Auto), err)
}

// excluded parses Exclude.
func (c Config) excluded() (list []netip.Prefix, err error) {
	for _, text := range c.Exclude {
		prefix, parseErr := netip.ParsePrefix(strings.TrimSpace(text)) // behind a comma
		switch {
		case parseErr != nil:
			err = errors.Join(err, fmt.Errorf("masquerade-exclude %q: want a prefix such as 192.168.0.0/16 or 2001:db8::/32", text))
		case prefix.Addr().Is4In6():
			err = errors.Join(err, fmt.Errorf("masquerade-exclude %q: write an IPv4 prefix as IPv4", text))
		case prefix != prefix.Masked():
			err = errors.Join(err, fmt.Errorf("masquerade-exclude %q: it has bits behind the prefix: want %s", text, prefix.Masked()))
		}
		list = append(list, prefix)
	}
	return list, err
}

func (c Config) families() (list []family) {
	if c.Families == IPv4 || c.Families == Both {
		list = append(list, newFamily(nft.IPv4))
	}
	if c.Families == IPv6 || c.Families == Both {
		list = append(list, newFamily(nft.IPv6))
	}
	return list
}
