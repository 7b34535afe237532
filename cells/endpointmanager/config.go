package endpointmanager

import (
	"errors"
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
	if !filepath.IsAbs(c.StateDir) {
		return errors.New("state-dir: want an absolute path, such as /run/porin")
	}
	return nil
}

func (c Config) ledgerPath() string    { return filepath.Join(c.StateDir, "ledger.db") }
func (c Config) deletionsPath() string { return filepath.Join(c.StateDir, "deletions") }
