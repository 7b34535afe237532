package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
)

// Where the cluster's records are.
const (
	storeEmbedded   = "embedded"   // a file of this node
	storeKubernetes = "kubernetes" // custom resources at the API server
)

// StoreConfig says where the cluster's records are, and which folder outlives the boot.
type StoreConfig struct {
	Backend string
	// Dir is on a disk: reservations and policies outlive the boot.
	Dir string
}

// DefaultStoreConfig is what the agent runs with by default: a cluster of one node.
func DefaultStoreConfig() StoreConfig {
	return StoreConfig{Backend: storeEmbedded, Dir: "/var/lib/porin"}
}

// Flags adds the flags.
func (c *StoreConfig) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Backend, "store", c.Backend, "where the cluster's state is: embedded (a file of this node) or kubernetes (records at the API server; want --kubeconfig, or a pod with a service account)")
	fs.StringVar(&c.Dir, "store-dir", c.Dir, "`folder` on a disk for what outlives the boot: reservations and policies; in multi-pool the node's key and checkpoints; the embedded store")
}

// Validate reports every fault.
func (c StoreConfig) Validate() (errs []error) {
	if c.Backend != storeEmbedded && c.Backend != storeKubernetes {
		errs = append(errs, fmt.Errorf("store %q: want embedded or kubernetes", c.Backend))
	}
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("store-dir %q: want an absolute path, such as /var/lib/porin", c.Dir))
	}
	return errs
}
