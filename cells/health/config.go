package health

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/health/probe"
)

// Config is the configuration of the cell.
type Config struct {
	// Endpoint gives the node a health endpoint. Without it, an existing one is removed.
	Endpoint bool
	// ProbeInterval is the time in which every other node is probed once, or as many of them as a sample has.
	ProbeInterval time.Duration
	// Node is the name of this node.
	Node string
	// StateDir has the file that the endpoint's namespace is bound to, on a tmpfs. It is made with the first one.
	StateDir string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config {
	return Config{Endpoint: true, ProbeInterval: probe.DefaultConfig().Interval, StateDir: "/run/porin"}
}

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Endpoint, "health-endpoint", c.Endpoint, "the node has an endpoint that the other nodes probe (not in delegated); without it, an existing one is removed")
	fs.DurationVar(&c.ProbeInterval, "health-probe-interval", c.ProbeInterval, "how often every other node is probed; above 200 nodes, as many of them at random")
}

const minProbeInterval = time.Second

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.ProbeInterval < minProbeInterval {
		errs = append(errs, fmt.Errorf("health-probe-interval %s: want at least %s", c.ProbeInterval, minProbeInterval))
	}
	if c.Endpoint && !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("state-dir %q: want an absolute path for the namespace of the health endpoint", c.StateDir))
	}
	return errors.Join(errs...)
}

func (c Config) namespacePath() string { return filepath.Join(c.StateDir, "health.netns") }
