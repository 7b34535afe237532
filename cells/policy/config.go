package policy

import (
	"path/filepath"

	"github.com/spf13/pflag"
)

// Config is the configuration of the cell.
type Config struct {
	// AllowHost lets this node always reach its own pods, as the probes of a kubelet need.
	AllowHost bool
	// Audit has what policies would deny on this node pass, and be reported.
	Audit bool
	// AllowUnmanaged lets unknown pods of other nodes reach this node's pods.
	AllowUnmanaged bool
	// Dir is the folder of the policies, on a disk. It is made with the first one. "" keeps none over a restart.
	Dir string
}

// DefaultConfig is what the agent runs with unless told otherwise.
func DefaultConfig() Config { return Config{AllowHost: true} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.AllowHost, "policy-allow-host", c.AllowHost, "this node always reaches its own pods, whatever policies say, as a kubelet's probes do")
	fs.BoolVar(&c.AllowUnmanaged, "policy-allow-unmanaged", c.AllowUnmanaged, "unknown pods of other nodes, such as new ones, reach restricted pods of this node")
	fs.BoolVar(&c.Audit, "policy-audit", c.Audit, "what policies would deny the pods of this node passes, and is reported")
}

// path is the file of the policies.
func (c Config) path() string {
	if c.Dir == "" {
		return ""
	}
	return filepath.Join(c.Dir, "policies.db")
}
