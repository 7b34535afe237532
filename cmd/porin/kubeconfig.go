package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-chi/chi/v5"
	"github.com/spf13/pflag"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/internal/fault"
)

// administrator adds the flags of commands that can do without the agent.
func administrator(flags func(*pflag.FlagSet, *options)) func(*pflag.FlagSet, *options) {
	return func(fs *pflag.FlagSet, o *options) {
		if flags != nil {
			flags(fs, o)
		}
		fs.StringVar(&o.kubeconfig, "kubeconfig", "", "a kubeconfig `file`: change the records at the API server with its credentials, and do not ask the agent (--store kubernetes)")
		fs.StringVar(&o.kubeContext, "context", "", "`name` of the kubeconfig's context; its current one when it is not given")
	}
}

// connect makes the client of the agent, or, with --kubeconfig, a client of the agent's routes in this process that
// work on the records at the API server.
func (s *session) connect() (disconnect func(), err error) {
	if s.kubeContext != "" && s.kubeconfig == "" {
		return nil, usageError{"--context: want --kubeconfig, too"}
	}
	if s.kubeconfig == "" {
		s.client = client.New(s.socket)
		return s.client.Close, nil
	}
	server, b, err := s.apiServer()
	if err != nil {
		return nil, err
	}
	nodes, routes := admin.NewNodes(b), chi.NewRouter()
	adminapi.NewRoutes(b, noAgent{}, admin.NewPools(b), nodes).Mount(routes)
	adminapi.NewNodeRoutes(b, nodes).Mount(routes)
	s.client = client.NewInProcess(routes)
	return server.Close, nil
}

// apiServer is the API server of --kubeconfig, or of the pod's service account, and the records there.
func (s *session) apiServer() (*kubernetes.Client, cluster.Backend, error) {
	c, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: s.kubeconfig, Context: s.kubeContext})
	if err != nil {
		if s.kubeconfig == "" {
			err = fmt.Errorf("want --kubeconfig: %w", err)
		}
		return nil, cluster.Backend{}, usageError{err.Error()}
	}
	b, err := kubernetes.NewBackend(c, slog.New(slog.DiscardHandler))
	return c, b, err
}

// noAgent stands for the agent where there is none.
type noAgent struct{}

var _ adminapi.Agent = noAgent{}

// BeginRecovery implements adminapi.Agent.
func (noAgent) BeginRecovery(context.Context) (bool, error) {
	return false, fault.New(fault.Invalid, "an agent begins a recovery: run porin ipam recover --begin on a node, without --kubeconfig")
}

// RecoveryRequested implements adminapi.Agent.
func (noAgent) RecoveryRequested() bool { return false }
