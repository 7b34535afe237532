package established

import (
	"fmt"

	"github.com/spf13/pflag"
)

// What is done with open connections.
const (
	Close = "close"
	Keep  = "keep"
)

// Config says what is done with connections that are open when layer 7 rules for them come.
type Config struct{ OpenConnections string }

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{OpenConnections: Close} }

// Flags adds the flags of the package.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.OpenConnections, "proxy-open-connections", c.OpenConnections,
		"connections of pods that are open when layer 7 rules for them come: close ends them at once, keep lets those of TCP go on past the proxy until they close")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.OpenConnections != Close && c.OpenConnections != Keep {
		return fmt.Errorf("proxy-open-connections %q: want %s or %s", c.OpenConnections, Close, Keep)
	}
	return nil
}
