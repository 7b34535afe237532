package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"go.uber.org/fx"

	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

// cniConf writes the CNI configuration list when the API serves: a runtime that finds it can attach containers.
type cniConf struct {
	path, socket, stateDir string
	log                    *slog.Logger
}

func cniConfModule(cfg Config) fx.Option {
	if cfg.CNIConfPath == "" {
		return fx.Options()
	}
	return cell.Module("cniconf", server.Watch(func(log *slog.Logger) cniConf {
		return cniConf{cfg.CNIConfPath, cfg.Server.Socket, cfg.EndpointManager.StateDir, log}
	}))
}

// Serving implements server.Watcher.
func (c cniConf) Serving() {
	if err := c.write(); err != nil {
		c.log.Error("CNI configuration not written: the runtime will not find this plugin", "path", c.path, "error", err)
		return
	}
	c.log.Info("CNI configuration is in place", "path", c.path)
}

// Stopping implements server.Watcher. The file stays: the plugin says itself that the agent is away.
func (c cniConf) Stopping() {}

// write replaces the file as a whole, for the runtime watches the folder, and leaves one alone that is right.
func (c cniConf) write() error {
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
	temporary := filepath.Join(filepath.Dir(c.path), "."+filepath.Base(c.path)+".tmp") // runtimes read *.conflist
	err = writeSynced(temporary, text)
	if err == nil {
		err = os.Rename(temporary, c.path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

// writeSynced returns when the content is on the disk: a file that is renamed before that may be empty after a power cut.
func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// capabilities are what a runtime is to hand over besides: limits of bandwidth, the addresses and host ports that are asked for, and the
// annotations of the pod, of which one names a pool, one a reservation, and one says that the pod is not masqueraded.
var capabilities = map[string]bool{"bandwidth": true, "ips": true, "portMappings": true, "io.kubernetes.cri.pod-annotations": true}

// list names 1.0.0 for libraries that read one version only, such as libcni 1.1 of containerd 1.6 and 1.7, which refuse a
// result of 1.1.0. Later ones choose the newest of cniVersions that they know.
func (c cniConf) list() any {
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
