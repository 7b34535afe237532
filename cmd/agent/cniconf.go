package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/task"
)

// installation is the agent as a part of a Kubernetes cluster.
type installation interface {
	// WaitKnown returns when an ADD finds all that it needs of the Kubernetes API.
	WaitKnown(ctx context.Context) error
	// SetReady says that the node can start pods.
	SetReady()
	// Uninstalled reports whether the cluster removes Porin.
	Uninstalled(ctx context.Context) bool
}

// cniConf writes the CNI configuration list when an ADD can succeed: a runtime that finds it attaches containers. It
// writes the file again when another program has removed it. The file stays when the agent ends, and the plugin says
// that the agent is away; it goes when Porin is uninstalled.
type cniConf struct {
	path, socket, stateDir string
	installation           installation // nil without the Kubernetes API
	log                    *slog.Logger
	serving                chan struct{}
	task                   *task.Task

	placed bool // this agent has written the file
	known  bool // an ADD finds all that it needs
}

// confInterval is how often the agent looks whether the file is there.
const confInterval = 30 * time.Second

func newCNIConf(cfg Config, installation installation, log *slog.Logger) *cniConf {
	c := &cniConf{
		path: cfg.CNIConfPath, socket: cfg.Server.Socket, stateDir: cfg.EndpointManager.StateDir, installation: installation, log: log, serving: make(chan struct{}),
	}
	c.task = task.Every(log, task.Round{Name: "cni-configuration", Run: c.put, Interval: confInterval, Retry: time.Second, MaxRetry: 30 * time.Second})
	return c
}

func cniConfModule(cfg Config) fx.Option {
	return cell.Module("cniconf",
		fx.Provide(fx.Private, func(lc fx.Lifecycle, installation installation, log *slog.Logger) *cniConf {
			c := newCNIConf(cfg, installation, log)
			lc.Append(fx.StopHook(c.stop))
			return c
		}),
		server.Watch(func(c *cniConf) *cniConf { return c }),
		supervisor.Tasks(func(c *cniConf) *task.Task { return c.task }),
	)
}

// Serving implements server.Watcher. A file that is there already is not waited for: the node starts pods by it.
func (c *cniConf) Serving() {
	if _, err := os.Stat(c.path); err == nil || c.installation == nil {
		_ = c.place() // the task tries again
	}
	close(c.serving)
	c.task.Trigger()
}

// Stopping implements server.Watcher.
func (c *cniConf) Stopping() {}

// put is a round of the task.
func (c *cniConf) put(ctx context.Context) error {
	select {
	case <-c.serving:
	default:
		return nil
	}
	if c.installation != nil && !c.known {
		if err := c.installation.WaitKnown(ctx); err != nil {
			return err
		}
	}
	if err := c.place(); err != nil {
		return err
	}
	if c.installation != nil && !c.known {
		c.installation.SetReady()
	}
	c.known = true
	return nil
}

// place writes the file, if this agent has not done that yet or the file is gone.
func (c *cniConf) place() error {
	if _, err := os.Stat(c.path); c.path == "" || c.placed && err == nil {
		return nil
	}
	if err := c.write(); err != nil {
		return fmt.Errorf("write the CNI configuration, without which the runtime does not find this plugin: %w", err)
	}
	c.placed = true
	c.log.Info("CNI configuration is in place", "path", c.path)
	return nil
}

// stop removes the file if Porin is uninstalled, so that the node starts no pod with a plugin whose agent does not come
// back.
func (c *cniConf) stop(ctx context.Context) error {
	if c.path == "" || c.installation == nil || !c.installation.Uninstalled(ctx) {
		return nil
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the CNI configuration, as Porin is uninstalled: %w", err)
	}
	c.log.Info("Porin is uninstalled: CNI configuration removed", "path", c.path)
	return nil
}

// write replaces the file as a whole, for the runtime watches the folder, and leaves one alone that is right.
func (c *cniConf) write() error {
	text, err := json.MarshalIndent(c.list(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode CNI configuration: %w", err)
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(c.path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o755); err != nil {
		return err
	}
	return diskfile.Replace(c.path, text)
}

// capabilities are what a runtime is to hand over besides: limits of bandwidth, the requested addresses and host ports,
// and the annotations of the pod: a pool, a reservation, and whether the pod is masqueraded.
var capabilities = map[string]bool{"bandwidth": true, "ips": true, "portMappings": true, "io.kubernetes.cri.pod-annotations": true}

// list names 1.0.0 for libraries that read one version only, such as libcni 1.1 of containerd 1.6 and 1.7, which refuse
// a result of 1.1.0. Later ones choose the newest of cniVersions that they know.
func (c *cniConf) list() any {
	plugin := map[string]any{"type": "porin-cni", "socket": c.socket, "capabilities": capabilities}
	if c.stateDir != filepath.Dir(c.socket) {
		plugin["stateDir"] = c.stateDir
	}
	return struct {
		CNIVersion  string           `json:"cniVersion"`
		CNIVersions []string         `json:"cniVersions"`
		Name        string           `json:"name"`
		Plugins     []map[string]any `json:"plugins"`
	}{"1.0.0", []string{"0.4.0", "1.0.0", "1.1.0"}, "porin", []map[string]any{plugin}}
}
