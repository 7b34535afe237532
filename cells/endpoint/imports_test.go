package endpoint_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports lists what the package and its tests for others depend on: every cell imports it, and what embeds one.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "./endpointtest").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	for _, heavy := range []string{"go.uber.org/fx", "go.etcd.io/bbolt", "net/http", "github.com/prometheus/client_golang/prometheus"} {
		if slices.Contains(deps, heavy) {
			t.Errorf("cells/endpoint depends on %s", heavy)
		}
	}
}
