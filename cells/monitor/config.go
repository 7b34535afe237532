package monitor

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Config says how much is remembered.
type Config struct {
	// Events is how many of the last events are kept, at about a kilobyte each.
	Events int
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{Events: 1000} }

// Flags adds the flags of the monitor.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Events, "monitor-events", c.Events, "`number` of events that are kept for GET /v1/events")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Events < 1 || c.Events > 1_000_000 {
		return fmt.Errorf("monitor-events %d: want a number from 1 to 1000000", c.Events)
	}
	return nil
}
