package main

import (
	"strings"
	"testing"

	"porin.dev/porin/cells/ipam"
)

// TestDefaultPoolAtAPIServer: an agent that may not create the default pool refuses to start with it, and says how the
// pool is created.
func TestDefaultPoolAtAPIServer(t *testing.T) {
	cfg := testConfig(t)
	cfg.IPAM.Mode, cfg.Store.Backend, cfg.Kubernetes.Kubeconfig = ipam.ModeMultiPool, storeKubernetes, "/etc/porin/kubeconfig"
	cfg.MultiPool.DefaultPool = nil
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.MultiPool.DefaultPool = []string{"10.244.0.0/16", "fd00::/48"}
	const want = "porin cluster pool create default --prefix 10.244.0.0/16,fd00::/48"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
