package metrics

import (
	"github.com/spf13/pflag"

	"porin.dev/porin/internal/httpx"
)

// Config says where the metrics are served.
type Config struct {
	// Address is host:port; "" serves none.
	Address string
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{} }

// Flags adds the flags of the metrics.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Address, "metrics-address", c.Address, "`host:port` to serve /metrics on; empty serves none")
}

// Validate reports every fault.
func (c Config) Validate() error {
	return httpx.CheckAddress("metrics-address", c.Address, "127.0.0.1:9090 or :9090")
}
