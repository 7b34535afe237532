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
	// MaxEndpoints is the size of the maps, and the largest endpoint number. When it has changed, a start moves what
	// they hold to maps of the new size while packets pass, or answers [loader.ErrIncompatible] when they hold too much
	// for it.
	MaxEndpoints uint32
	// MaxConnections is the size of the map of connections between the endpoints and others. One between two endpoints
	// of the node has two entries. When the size has changed, a start replaces the map: open connections go on.
	MaxConnections uint32
	// MaxAddresses is how many addresses of pods and nodes of the cluster policies can tell apart. The map has room for
	// two policies. When it has changed, a start moves what the map holds.
	MaxAddresses uint32
}

// DefaultConfig returns the configuration of an agent that is told nothing.
func DefaultConfig() Config {
	return Config{BPFRoot: "/sys/fs/bpf/porin", MaxEndpoints: 4096, MaxConnections: 1 << 18, MaxAddresses: 1 << 17}
}

// Flags adds the flags of the cell, with the values of c as their defaults.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.BPFRoot, "bpf-root", c.BPFRoot, "folder of a BPF file system where programs and maps are pinned")
	fs.Uint32Var(&c.MaxConnections, "datapath-max-connections", c.MaxConnections, "connections that the programs remember, about 240 bytes of the kernel's memory each; a connection between two pods of the node counts twice")
	fs.Uint32Var(&c.MaxAddresses, "datapath-max-addresses", c.MaxAddresses, "addresses of pods and nodes of the whole cluster that policies can tell apart: about 100 bytes of the kernel's memory for each that there is, and 32 for each that there may be")
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.BPFRoot) || filepath.Clean(c.BPFRoot) != c.BPFRoot || c.BPFRoot == "/" {
		errs = append(errs, fmt.Errorf("bpf-root %q: want a clean absolute path", c.BPFRoot))
	}
	if c.MaxEndpoints == 0 || c.MaxEndpoints > 1<<16-1 {
		errs = append(errs, fmt.Errorf("max-endpoints %d: want 1 to 65535, the number of endpoint IDs", c.MaxEndpoints))
	}
	if c.MaxConnections < 1024 || c.MaxConnections > 1<<24 {
		errs = append(errs, fmt.Errorf("datapath-max-connections %d: want 1024 to %d", c.MaxConnections, 1<<24))
	}
	if c.MaxAddresses < 1024 || c.MaxAddresses > 1<<22 {
		errs = append(errs, fmt.Errorf("datapath-max-addresses %d: want 1024 to %d", c.MaxAddresses, 1<<22))
	}
	return errors.Join(errs...)
}
