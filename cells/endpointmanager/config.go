package endpointmanager

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
)

// Config says where the manager keeps its record.
type Config struct {
	// StateDir holds the ledger and the deletion records. It belongs on a tmpfs: endpoints end with the node's boot.
	StateDir string
	// TombstoneTTL is how long a deletion is remembered.
	TombstoneTTL time.Duration
	// RetryInterval is the wait before what failed in a deletion is tried again, and doubles up to a minute.
	RetryInterval time.Duration
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config {
	return Config{StateDir: "/run/porin", TombstoneTTL: 10 * time.Minute, RetryInterval: time.Second}
}

// Flags adds the flags of the manager.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "`folder` of the ledger and the deletion records, on a tmpfs")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("state-dir %q: want an absolute path, such as /run/porin", c.StateDir))
	}
	if c.TombstoneTTL <= 0 || c.RetryInterval <= 0 {
		errs = append(errs, fmt.Errorf("tombstone TTL %s, retry interval %s: want both above zero", c.TombstoneTTL, c.RetryInterval))
	}
	return errors.Join(errs...)
}

func (c Config) ledgerPath() string    { return filepath.Join(c.StateDir, "ledger.db") }
func (c Config) deletionsPath() string { return filepath.Join(c.StateDir, "deletions") }
