package v1_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The CNI plugin is a process a pod, and what a package imports is what its start costs.
func TestPackageImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	for _, heavy := range []string{"net/http", "crypto/tls", "net"} {
		if slices.Contains(deps, heavy) {
			t.Errorf("api/v1 imports %s", heavy)
		}
	}
	for _, dep := range deps {
		if host, _, _ := strings.Cut(dep, "/"); strings.Contains(host, ".") && !strings.HasPrefix(dep, "porin.dev/") {
			t.Errorf("api/v1 imports %s", dep)
		}
	}
}
