package multipool

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/cluster"
)

// Config says how a node holds blocks.
type Config struct {
	Node   string            // name of the node
	Labels map[string]string // of the node, for the node selectors of pools
	// Dir is a folder on a disk, for the node's key and its checkpoint.
	Dir string
	// PreAllocate is how many free addresses of each family a node with endpoints keeps of the default pool.
	PreAllocate int
	// DefaultPool are the prefixes of the pool [DefaultPool], which the first node creates, once: if an administrator
	// deletes it, it stays deleted. Without prefixes, an administrator creates the pool.
	DefaultPool []string
	// IdleTime is how long nothing of a block must be in use before it is given back.
	IdleTime time.Duration
	// SearchTime is the first pause after a search that found every block of a pool taken. It doubles, up to half a
	// minute.
	SearchTime time.Duration
	// ContestTime is how long an agent gives out nothing after a boot of its machine, or when the store has a session
	// of another machine: if its disk is a copy, the other machine has that time to object.
	ContestTime time.Duration
	// Interval is the time between two rounds in which nothing else has to be done.
	Interval time.Duration
}

// DefaultPool is the pool of whoever asks for none.
const DefaultPool = cluster.DefaultPool

const (
	maxSearchTime  = 30 * time.Second
	maxPreAllocate = 1 << 16
)

// DefaultConfig is what a node runs with unless told otherwise. Node and Dir are missing.
func DefaultConfig() Config {
	return Config{PreAllocate: 8, IdleTime: time.Minute, SearchTime: time.Second, ContestTime: time.Second, Interval: 10 * time.Second}
}

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.DefaultPool, "ipam-default-pool", c.DefaultPool, "`CIDRs` of the pool \"default\", which the first node of a cluster creates, once (multi-pool)")
	fs.IntVar(&c.PreAllocate, "ipam-pre-allocate", c.PreAllocate, "free addresses of the default pool that a node with endpoints keeps (multi-pool)")
}

// Validate reports every fault.
func (c Config) Validate() error {
	errs := []error{cluster.NodeID{Name: c.Node, Key: cluster.NewKey()}.Validate()}
	if c.Dir == "" {
		errs = append(errs, errors.New("no folder for the node's key and checkpoint"))
	}
	if c.PreAllocate < 0 || c.PreAllocate > maxPreAllocate {
		errs = append(errs, fmt.Errorf("ipam-pre-allocate %d: want 0 to %d", c.PreAllocate, maxPreAllocate))
	}
	if c.IdleTime <= 0 || c.SearchTime <= 0 || c.ContestTime <= 0 || c.Interval <= 0 {
		errs = append(errs, fmt.Errorf("idle time %s, search time %s, contest time %s, interval %s: want more than zero",
			c.IdleTime, c.SearchTime, c.ContestTime, c.Interval))
	}
	if prefixes, err := c.defaultPrefixes(); err != nil {
		errs = append(errs, err)
	} else if len(prefixes) > 0 {
		errs = append(errs, cluster.Pool{Name: DefaultPool, Prefixes: prefixes}.WithDefaults().Validate())
	}
	return errors.Join(errs...)
}

func (c Config) defaultPrefixes() (prefixes []netip.Prefix, err error) {
	for _, text := range c.DefaultPool {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipam-default-pool %q: want a prefix, such as 10.244.0.0/16", text)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
