package delegate

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Config says where IPAM plugins are.
type Config struct {
	// BinDirs are the folders of plugins, below HostRoot. The first that has a plugin is used.
	BinDirs []string
	// HostRoot is where the node's root file system is; plugins run with it as their root. "" is the agent's own.
	HostRoot string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config { return Config{BinDirs: []string{"/opt/cni/bin"}} }

// Flags adds the flags of the package.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.BinDirs, "cni-bin-dirs", c.BinDirs, "`folders` of IPAM plugins that a network configuration may name")
	fs.StringVar(&c.HostRoot, "cni-host-root", c.HostRoot, "`folder` where an agent in a container has the node's root file system: IPAM plugins run in it")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	for _, dir := range c.BinDirs {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("cni-bin-dirs %q: want absolute paths, such as /opt/cni/bin", dir))
		}
	}
	if c.HostRoot != "" && !filepath.IsAbs(c.HostRoot) {
		errs = append(errs, fmt.Errorf("cni-host-root %q: want an absolute path, such as /host", c.HostRoot))
	}
	return errors.Join(errs...)
}
