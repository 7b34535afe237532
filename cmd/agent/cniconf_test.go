package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
)

func cniConfOf(t *testing.T) *cniConf {
	cfg := DefaultConfig()
	cfg.CNIConfPath = filepath.Join(t.TempDir(), "net.d", "05-porin.conflist")
	return newCNIConf(cfg, nil, slog.New(slog.DiscardHandler))
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCNIConfigFound(t *testing.T) {
	c := cniConfOf(t)
	c.stateDir = "/elsewhere"
	c.Serving()
	list, err := libcni.ConfListFromFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	if list.Name != "porin" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "porin-cni" {
		t.Errorf("list %s of %d plugins", list.Name, len(list.Plugins))
	}
	if got, want := string(list.Plugins[0].Bytes), `{"capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true,"ips":true,"portMappings":true},"socket":"/run/porin/agent.sock","stateDir":"/elsewhere","type":"porin-cni"}`; got != want {
		t.Errorf("plugin %s, want %s", got, want)
	}
	if names := filesIn(t, filepath.Dir(c.path)); len(names) != 1 {
		t.Errorf("the folder has %v", names)
	}
}

func TestConfigurationVersions(t *testing.T) {
	c := cniConfOf(t)
	c.Serving()
	text, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		CNIVersion  string
		CNIVersions []string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0.4.0", "1.0.0", "1.1.0"}; list.CNIVersion != "1.0.0" || !slices.Equal(list.CNIVersions, want) {
		t.Errorf("version %s, versions %v, want 1.0.0 and %v", list.CNIVersion, list.CNIVersions, want)
	}
}

func TestCNIConfigUnchanged(t *testing.T) {
	c := cniConfOf(t)
	inode := func() os.FileInfo {
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := inode()
	if !os.SameFile(first, inode()) {
		t.Error("the same configuration was written again")
	}
	c.socket = "/other/agent.sock"
	if os.SameFile(first, inode()) {
		t.Error("another configuration was not written in a new file")
	}
}

func TestCNIConfigNotWritable(t *testing.T) {
	c := cniConfOf(t)
	if err := os.MkdirAll(filepath.Join(c.path, "in-the-way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.write(); err == nil {
		t.Error("a folder was replaced")
	}
}

// fakeInstallation is a cluster. The agent knows it when known is closed.
type fakeInstallation struct {
	known       chan struct{}
	ready       bool
	uninstalled bool
}

func (f *fakeInstallation) WaitKnown(ctx context.Context) error {
	select {
	case <-f.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeInstallation) SetReady() { f.ready = true }

func (f *fakeInstallation) Uninstalled(context.Context) bool { return f.uninstalled }

func TestCNIConfigWaits(t *testing.T) {
	c := cniConfOf(t)
	cluster := &fakeInstallation{known: make(chan struct{})}
	c.installation = cluster
	exists := func() bool { _, err := os.Stat(c.path); return err == nil }
	if err := c.put(t.Context()); err != nil || exists() {
		t.Errorf("before the agent serves: error %v, file %t", err, exists())
	}
	c.Serving()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.put(short); err == nil || exists() || cluster.ready {
		t.Errorf("before the cluster is known: error %v, file %t, ready %t", err, exists(), cluster.ready)
	}
	close(cluster.known)
	if err := c.put(t.Context()); err != nil || !exists() || !cluster.ready {
		t.Errorf("error %v, file %t, ready %t", err, exists(), cluster.ready)
	}
	cluster.known = nil // a Node that was deleted meanwhile
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	if err := c.put(t.Context()); err != nil || !exists() {
		t.Errorf("after a removal of the file: error %v, file %t", err, exists())
	}

	again := cniConfOf(t)
	again.path, again.socket = c.path, "/other/agent.sock"
	again.installation = &fakeInstallation{known: make(chan struct{})}
	again.Serving()
	if text, err := os.ReadFile(c.path); err != nil || !strings.Contains(string(text), again.socket) {
		t.Errorf("a file that was there is not replaced at once: %s, %v", text, err)
	}
	for _, uninstalled := range []bool{false, true} {
		cluster.uninstalled = uninstalled
		if err := c.stop(t.Context()); err != nil || exists() == uninstalled {
			t.Errorf("uninstalled %t: error %v, file %t", uninstalled, err, exists())
		}
	}
}
