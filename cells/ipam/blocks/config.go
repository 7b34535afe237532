package blocks

import (
	"errors"
	"fmt"
	"time"
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
	// MemoPath is the file that says what the node owned, for a start while the store is away; "" is none.
	MemoPath string
}

// DefaultConfig is what a node runs with unless told otherwise; Node is missing.
func DefaultConfig() Config {
	return Config{
		PreAllocate: 8, LeaseTTL: 30 * time.Second, Grace: time.Hour, GiveBackAfter: time.Minute, Interval: 10 * time.Second,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("node: want its name"))
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
	if c.GiveBackAfter < 0 {
		errs = append(errs, fmt.Errorf("give back after %s: want no less than zero", c.GiveBackAfter))
	}
	return errors.Join(errs...)
}

// enough is how many free addresses a node wants to have.
func (c Config) enough() int { return max(c.PreAllocate, 1) }

// fence is how long after it was cut off a node may give out addresses of its blocks.
func (c Config) fence() time.Duration { return c.Grace / 10 * 9 }
