package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports keeps out what makes a process start late: a package costs by being linked.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, heavy := range []string{"net", "net/http", "regexp", "log", "log/slog", "crypto/tls", "text/template", "os/exec", "context"} {
		if slices.Contains(deps, heavy) {
			t.Errorf("porin-cni links %s", heavy)
		}
	}
	for _, dep := range deps {
		first, _, _ := strings.Cut(dep, "/")
		if strings.Contains(first, ".") && first != "porin.dev" && !strings.HasPrefix(dep, "golang.org/x/sys/unix") {
			t.Errorf("porin-cni links %s", dep)
		}
	}
}
