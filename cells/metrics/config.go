package metrics

import (
	"fmt"
	"net"

	"github.com/spf13/pflag"
)

// Config says where the metrics are served.
type Config struct {
	// Address is host:port; "" serves none.
	Address string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config { return Config{} }

// Flags adds the flags of the metrics.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Address, "metrics-address", c.Address, "`host:port` to serve /metrics on; empty serves none")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fmt.Errorf("metrics-address %q: want host:port, such as 127.0.0.1:9090 or :9090", c.Address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("metrics-address %q: no such port: %s", c.Address, port)
	}
	return nil
}
