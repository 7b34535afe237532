package endpointmanager

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
)

// Config says where the manager keeps its record, and who comes first.
type Config struct {
	// StateDir holds the ledger and the deletion records. It belongs on a tmpfs: endpoints end with the node's boot.
	StateDir string
	// TombstoneTTL is how long a deletion is remembered: for calls that come late, and for addresses that are not to be
	// given out yet, also over a restart of the agent.
	TombstoneTTL time.Duration
	// RetryInterval is the wait before a failed deletion is tried again. It doubles up to a minute.
	RetryInterval time.Duration
	// Parallel is how many endpoints are made at the same time, and how many are taken down.
	Parallel int
	// MaxEndpoints is how many endpoints the node may have, and the largest endpoint number.
	MaxEndpoints uint16
	// CriticalNamespaces and CriticalPriorityClasses say which pods' endpoints are made before all others.
	CriticalNamespaces, CriticalPriorityClasses []string
	// GCShare is the part of a network's endpoints, from 0 to 1, that one GC call may delete. More needs a second call.
	GCShare float64
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config {
	return Config{
		StateDir: "/run/porin", TombstoneTTL: 20 * time.Minute, RetryInterval: time.Second, Parallel: 16, MaxEndpoints: 4096,
		CriticalNamespaces:      []string{"kube-system"},
		CriticalPriorityClasses: []string{"system-node-critical", "system-cluster-critical"},
		GCShare:                 0.5,
	}
}

// Flags adds the flags of the manager.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "`folder` of the ledger and the deletion records, on a tmpfs")
	fs.Uint16Var(&c.MaxEndpoints, "max-endpoints", c.MaxEndpoints, "endpoints that the node may have; the BPF maps have room for as many, and a start moves their entries when it has changed")
	fs.IntVar(&c.Parallel, "endpoint-parallel", c.Parallel, "endpoints that are made at the same time; as many are taken down")
	fs.StringSliceVar(&c.CriticalNamespaces, "endpoint-critical-namespaces", c.CriticalNamespaces, "namespaces whose pods are attached before all others")
	fs.StringSliceVar(&c.CriticalPriorityClasses, "endpoint-critical-priority-classes", c.CriticalPriorityClasses, "priority classes whose pods are attached before all others")
	fs.Float64Var(&c.GCShare, "endpoint-gc-share", c.GCShare, "part of a network's endpoints, 0 to 1, that one GC call may delete; more go at a second call")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("state-dir %q: want an absolute path, such as /run/porin", c.StateDir))
	}
	if c.MaxEndpoints == 0 {
		errs = append(errs, errors.New("max-endpoints 0: want 1 to 65535"))
	}
	if c.TombstoneTTL <= 0 || c.RetryInterval <= 0 {
		errs = append(errs, fmt.Errorf("tombstone TTL %s, retry interval %s: want both above zero", c.TombstoneTTL, c.RetryInterval))
	}
	if c.Parallel <= 0 {
		errs = append(errs, fmt.Errorf("endpoint-parallel %d: want at least 1", c.Parallel))
	}
	if !(c.GCShare >= 0 && c.GCShare <= 1) { // NaN is neither
		errs = append(errs, fmt.Errorf("endpoint-gc-share %v: want 0 to 1", c.GCShare))
	}
	return errors.Join(errs...)
}

func (c Config) ledgerPath() string    { return filepath.Join(c.StateDir, "ledger.db") }
func (c Config) deletionsPath() string { return filepath.Join(c.StateDir, "deletions") }
