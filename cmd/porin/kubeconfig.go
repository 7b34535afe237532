package main

import (
	"context"
	"log/slog"

	"github.com/go-chi/chi/v5"
	"github.com/spf13/pflag"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/fault"
)

// kubeconfigFlags are of all commands of "porin cluster".
func kubeconfigFlags(flags func(*pflag.FlagSet, *options)) func(*pflag.FlagSet, *options) {
	return func(fs *pflag.FlagSet, o *options) {
		if flags != nil {
			flags(fs, o)
		}
		fs.StringVar(&o.kubeconfig, "kubeconfig", "", "a kubeconfig `file`; $KUBECONFIG, ~/.kube/config or the pod's service account when it is not given")
		fs.StringVar(&o.kubeContext, "context", "", "`name` of the kubeconfig's context; its current one when it is not given")
	}
}

// clusterFlags are of commands that ask all agents of a cluster.
func clusterFlags(flags func(*pflag.FlagSet, *options)) func(*pflag.FlagSet, *options) {
	return kubeconfigFlags(func(fs *pflag.FlagSet, o *options) {
		if flags != nil {
			flags(fs, o)
		}
		fs.StringVar(&o.agentNamespace, "agent-namespace", fleet.DefaultNamespace, "`namespace` in which Porin is installed")
	})
}

// ofRecords are administrators' commands on the records at the API server. Each does the same without an agent.
func ofRecords(agents []command) (list []command) {
	for _, c := range agents {
		if c.records {
			c.name, c.flags = clusterGroup+" "+c.name, kubeconfigFlags(c.flags)
			list = append(list, c)
		}
	}
	return list
}

// connect makes the client of the agent, or the clients of a cluster: for its agents, and for the records at the API
// server.
func (s *session) connect(group string) (disconnect func(), err error) {
	if group == clusterGroup {
		s.cluster, s.client, disconnect, err = s.dial(s.kubeconfig, s.kubeContext, s.agentNamespace)
		return disconnect, err
	}
	s.client = client.New(s.socket)
	return s.client.Close, nil
}

// listNodes waits for the API server as long as --timeout says.
func (s *session) listNodes(ctx context.Context) ([]fleet.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.cluster.Nodes(ctx)
}

// dialCluster makes the clients of the cluster of a kubeconfig. It makes no connection.
func dialCluster(kubeconfig, kubeContext, namespace string) (fleet.Cluster, *client.Client, func(), error) {
	server, b, err := dialRecords(kubeconfig, kubeContext)
	if err != nil {
		return nil, nil, nil, err
	}
	config, err := fleet.Config(kubeconfig, kubeContext)
	if err != nil {
		return nil, nil, nil, err
	}
	agents, err := fleet.Connect(config, namespace)
	if err != nil {
		return nil, nil, nil, err
	}
	nodes, routes := admin.NewNodes(b), chi.NewRouter()
	adminapi.NewRoutes(b, noAgent{}, admin.NewPools(b), nodes).Mount(routes)
	adminapi.NewNodeRoutes(b, nodes).Mount(routes)
	return agents, client.NewInProcess(routes), server.Close, nil
}

// dialRecords makes a client of the API server, and one of the records there.
func dialRecords(kubeconfig, kubeContext string) (*kubernetes.Client, cluster.Backend, error) {
	config, err := fleet.Config(kubeconfig, kubeContext)
	if err != nil {
		return nil, cluster.Backend{}, usageError{err.Error()}
	}
	server, err := kubernetes.NewClientFor(config, nil)
	if err != nil {
		return nil, cluster.Backend{}, err
	}
	b, err := kubernetes.NewBackend(server, slog.New(slog.DiscardHandler))
	return server, b, err
}

// noAgent stands for the agent where there is none.
type noAgent struct{}

var _ adminapi.Agent = noAgent{}

// BeginRecovery implements adminapi.Agent.
func (noAgent) BeginRecovery(context.Context) (bool, error) {
	return false, fault.New(fault.Invalid, "an agent begins a recovery: run porin ipam recover --begin on a node")
}

// RecoveryRequested implements adminapi.Agent.
func (noAgent) RecoveryRequested() bool { return false }
