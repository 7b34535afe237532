package flow

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Config says how much is remembered.
type Config struct {
	// Flows is how many of the last flows are kept, at about 270 bytes each. A request has about 500, and up to 1 KB more
	// with a long path.
	Flows int
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{Flows: 10_000} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Flows, "monitor-flows", c.Flows, "`number` of flows that are kept for GET /v1/flows")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Flows < 1 || c.Flows > 1_000_000 {
		return fmt.Errorf("monitor-flows %d: want a number from 1 to 1000000", c.Flows)
	}
	return nil
}
