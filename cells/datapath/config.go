package datapath

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Config says where the datapath keeps what is in the kernel, and how much of it there may be.
type Config struct {
	// BPFRoot is a folder of a BPF file system, made when it is not there. No other program may use it.
	BPFRoot string
	// MaxEndpoints is the size of the maps. When it has changed, a start moves what they hold to maps of the new size while
	// packets pass, or answers [loader.ErrIncompatible] when they hold too much for it.
	MaxEndpoints uint32
}

// DefaultConfig returns the configuration of an agent that is told nothing.
func DefaultConfig() Config { return Config{BPFRoot: "/sys/fs/bpf/porin", MaxEndpoints: 4096} }

// Flags adds the flags of the cell, with the values of c as their defaults.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.BPFRoot, "bpf-root", c.BPFRoot, "folder of a BPF file system where programs and maps are pinned")
	fs.Uint32Var(&c.MaxEndpoints, "datapath-max-endpoints", c.MaxEndpoints, "endpoints that the BPF maps have room for; a start moves the entries when it has changed")
}

// Validate reports every fault at once.
func (c *Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.BPFRoot) || filepath.Clean(c.BPFRoot) != c.BPFRoot || c.BPFRoot == "/" {
		errs = append(errs, fmt.Errorf("bpf-root %q: want a clean absolute path", c.BPFRoot))
	}
	if c.MaxEndpoints == 0 || c.MaxEndpoints > 1<<16-1 {
		errs = append(errs, fmt.Errorf("datapath-max-endpoints %d: want 1 to 65535, the number of endpoint IDs", c.MaxEndpoints))
	}
	return errors.Join(errs...)
}
