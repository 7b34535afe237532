package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// envPlugins names a folder with the reference plugins, as make bench has it.
const envPlugins = "PORIN_PLUGIN_DIR"

// HostLocal returns the binary of the reference IPAM plugin host-local: the one that PORIN_PLUGIN_DIR has, or else one built
// from the version that the bench pins, as this module does without the plugins.
func HostLocal(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(envPlugins); dir != "" {
		return filepath.Join(dir, "host-local")
	}
	binary := filepath.Join(t.TempDir(), "host-local")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "github.com/containernetworking/plugins/plugins/ipam/host-local")
	cmd.Dir = filepath.Join(moduleRoot(), "test", "bench")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build host-local: %v\n%s\nThere is no way out of the namespaces of the tests: set %s", err, out, envPlugins)
	}
	return binary
}
