package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// envLibCNI names a folder with the programs of test/libcni, as make libcni has it.
const envLibCNI = "PORIN_LIBCNI_DIR"

// libcniFlags build the programs of test/libcni.
var libcniFlags = map[string]string{"containerd-1.7": "-modfile=containerd-1.7.mod", "containerd-2": "-tags=", "cri-o": "-tags=crio"}

// LibCNI returns the program of test/libcni that calls plugins as a runtime does. It builds the program from the module
// cache unless PORIN_LIBCNI_DIR has it.
func LibCNI(t testing.TB, runtime string) string {
	t.Helper()
	if dir := os.Getenv(envLibCNI); dir != "" {
		return filepath.Join(dir, runtime)
	}
	binary := filepath.Join(t.TempDir(), runtime)
	build := exec.Command("go", "build", "-trimpath", "-o", binary, libcniFlags[runtime], ".")
	build.Dir, build.Env = filepath.Join(moduleRoot(), "test", "libcni"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/libcni for %s: %v\n%s\nThere is no way out of the namespaces of the tests: set %s", runtime, err, out, envLibCNI)
	}
	return binary
}
