package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// envPlugins names a folder with the reference plugins, as make ipam-plugins has it.
const envPlugins = "PORIN_PLUGIN_DIR"

// referencePlugins is the module that has them; test/bench pins its version.
const referencePlugins = "github.com/containernetworking/plugins"

// IPAMPlugin returns the binary of a reference IPAM plugin, such as host-local.
func IPAMPlugin(t testing.TB, name string) string {
	t.Helper()
	return referencePlugin(t, "ipam", name)
}

// MetaPlugin returns the binary of a reference plugin that runs after another, such as portmap.
func MetaPlugin(t testing.TB, name string) string {
	t.Helper()
	return referencePlugin(t, "meta", name)
}

// referencePlugin returns the binary that PORIN_PLUGIN_DIR has, or else one built from the version that the bench pins.
// It is built inside its own module, with the dependencies that this one pins, as Porin does without them.
func referencePlugin(t testing.TB, kind, name string) string {
	t.Helper()
	if dir := os.Getenv(envPlugins); dir != "" {
		return filepath.Join(dir, name)
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", referencePlugins)
	list.Dir = filepath.Join(moduleRoot(), "test", "bench")
	module, err := list.Output()
	if err != nil {
		t.Fatalf("find %s: %v", referencePlugins, err)
	}
	binary := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "./plugins/"+kind+"/"+name)
	build.Dir, build.Env = strings.TrimSpace(string(module)), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s\nThere is no way out of the namespaces of the tests: set %s", name, err, out, envPlugins)
	}
	return binary
}
