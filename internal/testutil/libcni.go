package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// envLibCNI names a folder with the programs of test/libcni, as make libcni has it.
const envLibCNI = "PORIN_LIBCNI_DIR"

// LibCNIVersions are the versions of libcni that test/libcni is built with, the newest last.
var LibCNIVersions = []string{"1.1.2", "1.2.3", "1.3.1"}

// LibCNI returns the program of test/libcni with a version of libcni: the one that PORIN_LIBCNI_DIR has, or else one that is
// built from what the module cache has.
func LibCNI(t testing.TB, version string) string {
	t.Helper()
	if dir := os.Getenv(envLibCNI); dir != "" {
		return filepath.Join(dir, version)
	}
	binary := filepath.Join(t.TempDir(), version)
	flags := []string{"build", "-trimpath", "-o", binary}
	if version != LibCNIVersions[len(LibCNIVersions)-1] { // which go.mod has
		flags = append(flags, "-modfile=v"+version+".mod")
	}
	if version != "1.1.2" { // which has neither STATUS nor GC
		flags = append(flags, "-tags=libcni12")
	}
	build := exec.Command("go", append(flags, ".")...)
	build.Dir, build.Env = filepath.Join(moduleRoot(), "test", "libcni"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/libcni with libcni %s: %v\n%s\nThere is no way out of the namespaces of the tests: set %s", version, err, out, envLibCNI)
	}
	return binary
}
