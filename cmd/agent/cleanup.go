package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/cmd/agent/cleanup"
	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/procsys"
	"porin.dev/porin/internal/task"
)

// cleanupOptions are the flags of the command cleanup besides the flags of the agent.
type cleanupOptions struct{ force, wait bool }

func (o *cleanupOptions) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.force, "force", false, "also while pods use Porin, which are cut off")
	fs.BoolVar(&o.wait, "wait", false, "try again every 10 s, and stay after the success until SIGTERM")
}

// validateCleanup checks the settings that say where Porin is. The others do not matter.
func (c Config) validateCleanup() error {
	errs := []error{c.Server.Validate(), c.EndpointManager.Validate(), c.Delegate.Validate(), c.Datapath.Validate(), c.Proxy.Validate(), c.Supervisor.Validate()}
	if !filepath.IsAbs(c.Store.Dir) {
		errs = append(errs, fmt.Errorf("store-dir %q: want an absolute path", c.Store.Dir))
	}
	if c.CNIConfPath != "" && !filepath.IsAbs(c.CNIConfPath) {
		errs = append(errs, fmt.Errorf("cni-conf-path %q: want an absolute path", c.CNIConfPath))
	}
	return errors.Join(errs...)
}

func (c Config) cleanup(force bool) cleanup.Config {
	cfg := cleanup.Config{
		Server: c.Server, EndpointManager: c.EndpointManager, Health: c.health(), ProxySocket: c.Proxy.Socket, BPFRoot: c.Datapath.BPFRoot, StoreDir: c.Store.Dir,
		CNIConfPath: c.CNIConfPath, Force: force,
	}
	for _, dir := range c.Delegate.BinDirs {
		cfg.PluginDirs = append(cfg.PluginDirs, filepath.Join(c.Delegate.HostRoot, dir))
	}
	if c.Store.Backend == storeKubernetes {
		cfg.Records = fmt.Sprintf("records of the node at the API server: porin cluster node delete %s --machine-is-off", c.NodeName)
	}
	return cfg
}

// cleanupInterval is how often a cleanup that was refused, or has failed, is tried again.
const cleanupInterval = 10 * time.Second

func runCleanup(ctx context.Context, cfg Config, options cleanupOptions, stdout io.Writer) error {
	if err := procsys.MakeWritable(); err != nil {
		return err
	}
	reason := ""
	for {
		err := cleanup.Clean(ctx, cfg.cleanup(options.force), stdout)
		if !options.wait {
			return err
		}
		if err == nil {
			return stay(ctx, cfg.Supervisor.Address)
		}
		if text := err.Error(); text != reason {
			reason = text
			fmt.Fprintln(os.Stderr, "porin-agent: trying again:", reason)
		}
		if task.Sleep(ctx, cleanupInterval) != nil {
			return err
		}
	}
}

// stay serves the probes of the health address, if there is one, until ctx ends.
func stay(ctx context.Context, address string) error {
	if address != "" {
		listener, err := httpx.Listen(ctx, "the probes", "health-address", address)
		if err != nil {
			return err
		}
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		probes := httpx.Serve(&http.Server{Handler: ok, ReadHeaderTimeout: time.Second}, listener, func(error) {})
		defer func() { _ = probes.Stop(context.WithoutCancel(ctx)) }()
	}
	<-ctx.Done()
	return nil
}
