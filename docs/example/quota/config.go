package quota

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Config says how many endpoints a namespace may have.
type Config struct {
	// Endpoints is how many endpoints a namespace may have on this node; 0 sets no limit.
	Endpoints int
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{} }

// Flags adds the flags of the quota.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Endpoints, "quota-endpoints", c.Endpoints, "endpoints that a Kubernetes namespace may have on this node; 0 sets no limit")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Endpoints < 0 {
		return fmt.Errorf("quota-endpoints %d: want 0 or more", c.Endpoints)
	}
	return nil
}
