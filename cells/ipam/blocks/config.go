package blocks

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
)

// Config says how a node holds blocks.
type Config struct {
	Node   string
	Labels map[string]string
	// PreAllocate is how many free addresses a family of a pool a node keeps ahead of what is asked for.
	PreAllocate int
	// LeaseTTL is how long after its last sign a node is gone from the store.
	LeaseTTL time.Duration
	// Grace is how long a node must be gone before others take its blocks. A node that cannot reach the store gives
	// nothing out any more when nine tenths of it are over.
	Grace time.Duration
	// GiveBackAfter is how long a block must be empty, and not needed, before it is given back.
	GiveBackAfter time.Duration
	// Interval is the time between two looks at everything. A change in the store, and an ADD that finds no address, are
	// looked at once.
	Interval time.Duration
	// DefaultPool are the prefixes of the pool [DefaultPool], which the first node makes; none is that people make it.
	DefaultPool []string
	// MemoPath is the file that says what the node owned, for a start while the store is away; "" is none.
	MemoPath string
}

// DefaultConfig is what a node runs with unless told otherwise; Node is missing.
func DefaultConfig() Config {
	return Config{
		PreAllocate: 8, LeaseTTL: 30 * time.Second, Grace: time.Hour, GiveBackAfter: time.Minute, Interval: 10 * time.Second,
	}
}

// DefaultPool is the pool of whoever asks for none.
const DefaultPool = "default"

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.DefaultPool, "ipam-default-pool", c.DefaultPool, "`CIDRs` of the pool \"default\", which the first node of a cluster makes (multi-pool)")
	fs.IntVar(&c.PreAllocate, "ipam-pre-allocate", c.PreAllocate, "free addresses of a pool that a node keeps ahead (multi-pool)")
	fs.DurationVar(&c.Grace, "ipam-node-grace", c.Grace, "`time` that a node must be gone before others take its blocks (multi-pool)")
}

func parsePrefixes(texts []string) (prefixes []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipam-default-pool %q: want a prefix, such as 10.244.0.0/16", text)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("node: want its name"))
	} else if err := checkNode(c.Node); err != nil {
		errs = append(errs, fmt.Errorf("node %.64q: %w", c.Node, err))
	}
	if c.PreAllocate < 0 || c.PreAllocate > 1<<mostHostBits {
		errs = append(errs, fmt.Errorf("pre-allocate %d: want 0 to %d", c.PreAllocate, 1<<mostHostBits))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"lease TTL", c.LeaseTTL}, {"grace", c.Grace}, {"interval", c.Interval}} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: want more than zero", d.name, d.value))
		}
	}
	if prefixes, err := parsePrefixes(c.DefaultPool); err != nil {
		errs = append(errs, err)
	} else if pool := (Pool{Name: DefaultPool, Prefixes: prefixes}); len(prefixes) > 0 {
		errs = append(errs, pool.WithDefaults().Validate())
	}
	if c.GiveBackAfter < 0 {
		errs = append(errs, fmt.Errorf("give back after %s: want no less than zero", c.GiveBackAfter))
	}
	return errors.Join(errs...)
}

// enough is how many free addresses a node wants to have.
func (c Config) enough() int { return max(c.PreAllocate, 1) }

// fence is how long after it was cut off a node may give out addresses of its blocks.
func (c Config) fence() time.Duration { return c.Grace / 10 * 9 }
