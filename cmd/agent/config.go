package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/monitor/flow"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/masquerade"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/labels"
	"porin.dev/porin/internal/settings"
	"porin.dev/porin/internal/version"
)

// Config is the whole configuration of the agent: a field for each cell, and what belongs to no cell.
type Config struct {
	NodeName    string
	NodeLabels  map[string]string // what node selectors of pools are held against
	CNIConfPath string
	Logging     settings.Logging

	Server          server.Config
	EndpointManager endpointmanager.Config
	IPAM            ipam.Config
	Delegate        delegate.Config
	Kubernetes      kubernetes.Config
	Store           StoreConfig
	MultiPool       multipool.Config
	Node            node.Config
	Masquerade      masquerade.Config
	Policy          policy.Config
	Datapath        datapath.Config
	Proxy           control.ClientConfig
	Doctor          doctor.Config
	Health          health.Config
	Metrics         metrics.Config
	Monitor         monitor.Config
	Flow            flow.Config
	Supervisor      supervisor.Config
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config {
	name, _ := os.Hostname() // without one Validate asks for --node-name
	return Config{
		NodeName:        name,
		Logging:         settings.DefaultLogging(),
		Server:          server.DefaultConfig(),
		EndpointManager: endpointmanager.DefaultConfig(),
		IPAM:            ipam.DefaultConfig(),
		Delegate:        delegate.DefaultConfig(),
		Kubernetes:      kubernetes.DefaultConfig(),
		Store:           DefaultStoreConfig(),
		MultiPool:       multipool.DefaultConfig(),
		Node:            node.DefaultConfig(),
		Masquerade:      masquerade.DefaultConfig(),
		Policy:          policy.DefaultConfig(),
		Datapath:        datapath.DefaultConfig(),
		Proxy:           control.DefaultClientConfig(),
		Doctor:          doctor.DefaultConfig(),
		Health:          health.DefaultConfig(),
		Metrics:         metrics.DefaultConfig(),
		Monitor:         monitor.DefaultConfig(),
		Flow:            flow.DefaultConfig(),
		Supervisor:      supervisor.DefaultConfig(),
	}
}

// Flags adds the flags of every cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "`name` of this node in the cluster")
	fs.StringToStringVar(&c.NodeLabels, "node-labels", c.NodeLabels, "labels of this node, as `key=value,...`, for the node selectors of pools (multi-pool); the labels of its Kubernetes Node replace them")
	fs.Lookup("node-labels").DefValue = "" // which is how --help shows that there are none
	fs.StringVar(&c.CNIConfPath, "cni-conf-path", c.CNIConfPath, "`file` to write the CNI configuration list to when the agent is ready; empty: none")
	c.Logging.Flags(fs)
	c.Server.Flags(fs)
	c.EndpointManager.Flags(fs)
	c.IPAM.Flags(fs)
	c.Delegate.Flags(fs)
	c.MultiPool.Flags(fs)
	c.Kubernetes.Flags(fs)
	c.Store.Flags(fs)
	c.Node.Flags(fs)
	c.Masquerade.Flags(fs)
	c.Policy.Flags(fs)
	c.Datapath.Flags(fs)
	c.Proxy.Flags(fs)
	c.Doctor.Flags(fs)
	c.Health.Flags(fs)
	c.Metrics.Flags(fs)
	c.Monitor.Flags(fs)
	c.Flow.Flags(fs)
	c.Supervisor.Flags(fs)
}

// multiPool is the configuration of the node's blocks, with what the agent knows of the node.
func (c Config) multiPool() multipool.Config {
	c.MultiPool.Node, c.MultiPool.Labels, c.MultiPool.Dir = c.NodeName, c.NodeLabels, c.Store.Dir
	return c.MultiPool
}

// masquerade is the configuration of masquerading, with what the agent knows of the cluster.
func (c Config) masquerade() masquerade.Config { return c.Masquerade.Resolved(c.hasStore()) }

// node is the configuration of the node's place among the others, with what the agent knows of the node.
func (c Config) node() node.Config {
	c.Node.Name, c.Node.Version, c.Node.BPFRoot, c.Node.Dir = c.NodeName, version.Of(), c.Datapath.BPFRoot, c.Store.Dir
	return c.Node
}

// hasStore says whether the agent shares anything with others, or keeps blocks.
func (c Config) hasStore() bool {
	return c.IPAM.Mode == ipam.ModeMultiPool || c.Store.Backend != storeEmbedded
}

// datapath is the configuration of the node's part of the kernel, with what the agent knows of the node.
func (c Config) datapath() datapath.Config {
	c.Datapath.MaxEndpoints = uint32(c.EndpointManager.MaxEndpoints)
	return c.Datapath
}

// health is the configuration of the node's health endpoint, with what the agent knows of the node. Where another IPAM
// plugin has the addresses there is none.
func (c Config) health() health.Config {
	c.Health.Node, c.Health.StateDir = c.NodeName, c.EndpointManager.StateDir
	c.Health.Endpoint = c.Health.Endpoint && c.IPAM.Mode != ipam.ModeDelegated
	return c.Health
}

// ipam is the configuration of the node's addresses, with what the agent knows of the node.
func (c Config) ipam() ipam.Config {
	c.IPAM.FromNode = c.IPAM.Mode == ipam.ModePodCIDR && len(c.IPAM.PodCIDRs) == 0 && c.Kubernetes.Enabled()
	c.IPAM.ReservationsPath = filepath.Join(c.Store.Dir, "reservations.db")
	return c.IPAM
}

// kubernetes is the configuration of what is read from the API server, with what the agent knows of the node.
func (c Config) kubernetes() kubernetes.Config {
	c.Kubernetes.NodePath = filepath.Join(c.Store.Dir, "kubernetesnode.json")
	c.Kubernetes.NeedPodCIDRs = c.ipam().FromNode
	c.Kubernetes.NeedRecords = c.Store.Backend == storeKubernetes
	return c.Kubernetes
}

// policy is the configuration of the node's policies, with what the agent knows of the node.
func (c Config) policy() policy.Config {
	c.Policy.Dir = c.Store.Dir
	return c.Policy
}

// Validate reports every fault of every cell.
func (c Config) Validate() error {
	errs := []error{
		c.Server.Validate(), c.EndpointManager.Validate(), c.ipam().Validate(), c.Delegate.Validate(), c.Datapath.Validate(), c.Proxy.Validate(), c.Doctor.Validate(), c.health().Validate(), c.Kubernetes.Validate(),
		c.Metrics.Validate(), c.Masquerade.Validate(), c.Monitor.Validate(), c.Flow.Validate(), c.Supervisor.Validate(),
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("node-name: want a name"))
	} else {
		errs = append(errs, c.node().Validate())
	}
	if c.Node.Routing == string(cluster.RoutingVXLAN) && c.IPAM.Mode == ipam.ModeDelegated {
		errs = append(errs, fmt.Errorf("routing %s: of no use in mode %s, where it is not known which addresses are this node's: use %s or %s",
			cluster.RoutingVXLAN, ipam.ModeDelegated, cluster.RoutingNative, cluster.RoutingExternal))
	}
	if c.CNIConfPath != "" && !filepath.IsAbs(c.CNIConfPath) {
		errs = append(errs, fmt.Errorf("cni-conf-path %q: want an absolute path, such as /etc/cni/net.d/05-porin.conflist", c.CNIConfPath))
	}
	if ttl := c.EndpointManager.TombstoneTTL; c.IPAM.Quarantine > ttl {
		errs = append(errs, fmt.Errorf("ipam-quarantine %s: want at most %s, which is how long a restarted agent knows of a release", c.IPAM.Quarantine, ttl))
	}
	if c.IPAM.Mode == ipam.ModeMultiPool {
		errs = append(errs, c.multiPool().Validate(), labels.Check("node-labels", c.NodeLabels))
	}
	errs = append(errs, c.Store.Validate()...)
	if c.Store.Backend == storeKubernetes && !c.Kubernetes.Enabled() {
		errs = append(errs, errors.New("store kubernetes: want --kubeconfig, or a pod with a service account, and --kubernetes auto"))
	}
	if c.IPAM.Mode == ipam.ModeMultiPool && c.Store.Backend == storeKubernetes && len(c.MultiPool.DefaultPool) > 0 {
		errs = append(errs, fmt.Errorf("ipam-default-pool: with --store kubernetes an agent has no right to create pools: leave it out, and create the pool with porin cluster pool create default --prefix %s",
			strings.Join(c.MultiPool.DefaultPool, ",")))
	}
	if c.IPAM.Mode != ipam.ModeMultiPool && len(c.NodeLabels) > 0 {
		errs = append(errs, fmt.Errorf("node-labels: of no effect in mode %s, which has no pools", c.IPAM.Mode))
	}
	_, err := c.Logging.Logger(nil)
	return errors.Join(append(errs, err)...)
}
