package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/internal/settings"
)

// TestManifestConfig: the agent takes the configuration file of deploy/porin.yaml as it is.
func TestManifestConfig(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "porin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ConfigMap" {
			if err := os.WriteFile(file, []byte(object.Data["agent.yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := DefaultConfig()
	fs := pflag.NewFlagSet("porin-agent", pflag.ContinueOnError)
	cfg.Flags(fs)
	cfg.Kubernetes.Kubeconfig = "/etc/porin/kubeconfig" // in the place of the pod's service account
	if err := settings.Load(fs, file, func(string) (string, bool) { return "", false }); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.Store.Backend != "kubernetes" || cfg.Proxy.Mode != "external" {
		t.Errorf("store %q, proxy-mode %q: want those of the file", cfg.Store.Backend, cfg.Proxy.Mode)
	}
	cfg.Kubernetes.Kubeconfig = "" // porin-cleanup has no token
	if err := cfg.validateCleanup(); err != nil {
		t.Error(err)
	}
}
