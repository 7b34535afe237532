package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
)

// The backends there are.
const (
	BackendEmbedded   = "embedded" // a file of this node
	BackendEtcd       = "etcd"
	BackendKubernetes = "kubernetes" // records at the API server: package kubernetes/records, not this one
)

// Config says where the cluster's state is.
type Config struct {
	Backend string
	// Dir is the folder of the embedded store's file. It is on a disk: what people have made outlives the boot.
	Dir string
	// Timeout is how long a call waits for a store that does not answer, when its context gives it longer.
	Timeout time.Duration
	Etcd    EtcdConfig
}

// DefaultConfig is what the agent runs with by default: a cluster of one node.
func DefaultConfig() Config {
	return Config{Backend: BackendEmbedded, Dir: "/var/lib/porin", Timeout: 5 * time.Second, Etcd: EtcdConfig{Prefix: "/porin/"}}
}

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Backend, "store", c.Backend, "where the cluster's state is: embedded (a file of this node), kubernetes (records at the API server; want --kubeconfig, or a pod with a service account) or etcd")
	fs.StringVar(&c.Dir, "store-dir", c.Dir, "`folder` on a disk for what outlives the boot: reservations and policies; in multi-pool the node's key and checkpoints; the embedded store")
	c.Etcd.flags(fs)
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Timeout <= 0 {
		return errors.Join(fmt.Errorf("the store's timeout %s: want more than zero", c.Timeout), c.validateBackend())
	}
	return c.validateBackend()
}

func (c Config) validateBackend() error {
	switch c.Backend {
	case BackendEmbedded, BackendKubernetes:
		var errs []error
		if !filepath.IsAbs(c.Dir) {
			errs = append(errs, fmt.Errorf("store-dir %q: want an absolute path, such as /var/lib/porin", c.Dir))
		}
		if len(c.Etcd.Endpoints) > 0 {
			errs = append(errs, errors.New("store-etcd-endpoints: of no effect without --store etcd"))
		}
		return errors.Join(errs...)
	case BackendEtcd:
		return c.Etcd.Validate()
	}
	return fmt.Errorf("store %q: want embedded, kubernetes or etcd", c.Backend)
}

func (c Config) path() string { return filepath.Join(c.Dir, "store.db") }
