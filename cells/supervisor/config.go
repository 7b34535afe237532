package supervisor

import (
	"github.com/spf13/pflag"

	"porin.dev/porin/internal/httpx"
)

// Config says where a kubelet asks for the agent's health.
type Config struct {
	// Address is host:port; "" serves none.
	Address string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config { return Config{} }

// Flags adds the flags of the supervisor.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Address, "health-address", c.Address, "`host:port` to serve /livez and /readyz on, for a kubelet; empty serves none")
}

// Validate reports every fault.
func (c Config) Validate() error {
	return httpx.CheckAddress("health-address", c.Address, "127.0.0.1:9092")
}
