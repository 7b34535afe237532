package main

import (
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/bandwidth"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/cni"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/hostport"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/monitor/flow"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/node/endpoints"
	"porin.dev/porin/cells/node/masquerade"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/proxy/mapkernel"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/version"
)

// Bounds of all start hooks and of all stop hooks together. A start restores every endpoint of the node.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Cells is the agent. Start hooks run in the order in which cells need each other: first of all the socket is claimed,
// so that a second agent touches nothing, and last of all it serves.
func Cells(cfg Config) fx.Option {
	return fx.Options(
		server.LockSocket(),
		endpointmanager.Module(cfg.EndpointManager),
		ipam.Module(cfg.ipam()),
		link.Module(),
		hostport.Module(),
		kubernetesAPI(cfg),
		clusterStore(cfg),
		healthAddresses(cfg),
		bandwidth.Module(),
		multiPool(cfg),
		node.Module(cfg.node()),
		masquerade.Module(cfg.masquerade()),
		policy.Module(cfg.policy()),
		datapath.Module(cfg.datapath()),
		proxyModule(cfg),
		doctor.Module(cfg.Doctor),
		capacity.Module(),
		health.Module(cfg.health()),
		monitor.Module(cfg.Monitor),
		flow.Module(cfg.Flow),
		metrics.Module(cfg.Metrics),
		cni.Module(cni.Config{StateDir: cfg.EndpointManager.StateDir, ConfPath: cfg.CNIConfPath}),
		supervisor.Module(cfg.Supervisor),
		server.Module(cfg.Server, server.Info{Version: version.Of(), Node: cfg.NodeName}),
		cniConfModule(cfg),
		fx.Provide(
			func() *delegate.Plugins { return delegate.New(cfg.Delegate) },
			func(d *doctor.Doctor) cni.Examiner { return d },
			func(c *capacity.Capacity) cni.Capacity { return c },
			func(s *allocator.Source) node.AddressSource { return ipam.NewTunnelAddresses(s) },
			func(d *datapath.Datapath) node.DirectPath { return d },
			func(n *node.Node) link.MTU { return n.PodMTU },
			func(n *node.Node) probe.Peers { return peersOf{n.Peers()} },
			func(d *datapath.Datapath) proxy.Kernel { return mapkernel.New(d.Redirects(), d.Enforcer()) },
			steps,
			blocks(cfg),
		),
	)
}

// leftOut provides the zero value of an input that this agent does not have.
func leftOut[T any]() fx.Option { return fx.Provide(func() (none T) { return none }) }

// proxyModule is the proxy within the agent, or the agent's end of one in a process of its own.
func proxyModule(cfg Config) fx.Option {
	if cfg.Proxy.Mode == control.ModeExternal {
		return control.ClientModule(cfg.Proxy)
	}
	return proxy.Module(proxy.Config{Config: redirect.Config{BPFRoot: cfg.Datapath.BPFRoot}, DrainTimeout: proxy.DefaultDrainTimeout, DeniedNames: cfg.Proxy.DeniedNames})
}

// multiPool is what the mode of that name needs besides: the node's blocks of the cluster's pools.
func multiPool(cfg Config) fx.Option {
	if cfg.IPAM.Mode != ipam.ModeMultiPool {
		return fx.Options(nodeCIDRs(cfg), server.Provide(func() noPools { return noPools{cfg.IPAM.Mode, cfg.hasStore()} }))
	}
	return multipool.Module(cfg.multiPool())
}

// nodeCIDRs is what mode pod-cidr needs when the node's object has the prefixes.
func nodeCIDRs(cfg Config) fx.Option {
	if !cfg.ipam().FromNode {
		return leftOut[allocator.Refiller]()
	}
	return fx.Options(ipam.NodeCIDRsModule(cfg.IPAM), fx.Provide(func(n *kubernetes.OwnNode) ipam.NodeObject { return n }))
}

// kubernetesAPI reads the API server, if there is one.
func kubernetesAPI(cfg Config) fx.Option {
	if !cfg.Kubernetes.Enabled() {
		return fx.Options(leftOut[node.Kubernetes](), leftOut[multipool.KubernetesNode](), leftOut[installation](), leftOut[cni.WaitingPods]())
	}
	return fx.Options(
		kubernetes.Module(cfg.kubernetes(), cfg.NodeName),
		fx.Provide(
			func(n *kubernetes.OwnNode) (node.Kubernetes, multipool.KubernetesNode) { return n, n },
			func(i *kubernetes.Installation) installation { return i },
			func(p *kubernetes.Pods) cni.WaitingPods { return p.Waiting },
			func(n *node.Node) kubernetes.Nodes { return peersOf{n.Peers()}.names },
		),
	)
}

// clusterStore is what nodes share: multi-pool needs it, and other nodes than this one do.
func clusterStore(cfg Config) fx.Option {
	if !cfg.hasStore() {
		return fx.Options(leftOut[cluster.Backend](), leftOut[*cache.Cache](), leftOut[policy.RemoteSource]())
	}
	all := []fx.Option{fx.Provide(admin.NewNodes), server.Provide(adminapi.NewNodeRoutes), endpoints.Module()}
	if cfg.Store.Backend == storeKubernetes {
		all = append(all, fx.Provide(kubernetes.NewAgentBackend, func(n *kubernetes.Namespaces) endpoints.Namespaces { return n }), cache.Module(cfg.Store.Dir))
	} else { // a file, which is never away
		all = append(all, embedded.Module(cfg.Store.Dir), leftOut[endpoints.Namespaces](), leftOut[*cache.Cache]())
	}
	return fx.Options(all...)
}

// healthAddresses has the node tell the others where its health endpoint is, if it has one.
func healthAddresses(cfg Config) fx.Option {
	if !cfg.Health.Endpoint {
		return leftOut[node.Health]()
	}
	return fx.Provide(func(l *health.LocalEndpoint) node.Health { return l })
}

// blocks says which addresses this node's pods have.
func blocks(cfg Config) any {
	if cfg.IPAM.Mode == ipam.ModeMultiPool {
		return func(c *multipool.Controller) node.Blocks { return c }
	}
	if cfg.ipam().FromNode {
		return func(n *ipam.NodeCIDRs) node.Blocks { return node.Named{Name: cfg.NodeName, Prefixes: n.Blocks} }
	}
	return func() node.Blocks {
		return node.Static{Node: node.IDOfName(cfg.NodeName), Prefixes: cfg.IPAM.Prefixes()}
	}
}

// steps is the order in which an endpoint comes up; it goes down in the reverse order.
func steps(
	ipam *ipam.Step, plugins *delegate.Plugins, link *link.Step, bandwidth *bandwidth.Step, hostport *hostport.Step, policy *policy.Step, proxy *proxy.Step, datapath *datapath.Step,
) endpoint.Steps {
	return endpoint.Steps{ipam.WithPlugins(plugins), link, bandwidth, hostport, policy, proxy, datapath}
}
