package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/settings"
)

// Config is the whole configuration of the proxy.
type Config struct {
	BPFRoot string
	// StayWhenReplaced keeps the process until SIGTERM after another one has taken over. It serves again when that one has
	// ended.
	StayWhenReplaced bool

	Logging    settings.Logging
	Control    control.ServerConfig
	Metrics    metrics.Config
	Supervisor supervisor.Config
}

// DefaultConfig is what the proxy runs with by default.
func DefaultConfig() Config {
	return Config{
		BPFRoot: datapath.DefaultConfig().BPFRoot, Logging: settings.DefaultLogging(), Control: control.DefaultServerConfig(), Metrics: metrics.DefaultConfig(),
		Supervisor: supervisor.DefaultConfig(),
	}
}

// Flags adds the flags of every cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.BPFRoot, "bpf-root", c.BPFRoot, "folder where the agent pins programs and maps")
	fs.BoolVar(&c.StayWhenReplaced, "stay-when-replaced", c.StayWhenReplaced, "after another porin-proxy has taken over, wait for SIGTERM instead of ending, and serve again if the other one ends first; for DaemonSets with maxSurge, as a kubelet would start the container again")
	c.Control.Flags(fs)
	c.Logging.Flags(fs)
	c.Metrics.Flags(fs)
	c.Supervisor.Flags(fs)
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	errs := []error{c.Control.Validate(), c.Metrics.Validate(), c.Supervisor.Validate()}
	if !filepath.IsAbs(c.BPFRoot) {
		errs = append(errs, fmt.Errorf("bpf-root %q: want an absolute path", c.BPFRoot))
	}
	_, err := c.Logging.Logger(nil)
	return errors.Join(append(errs, err)...)
}
