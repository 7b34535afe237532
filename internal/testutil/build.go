package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// envBinaries names a folder that has the binaries already.
const envBinaries = "PORIN_BIN_DIR"

// Build returns the folder with porin-agent, porin-cni and porin: PORIN_BIN_DIR's, or the one that
// [Binaries] filled, or else a fresh one, once for each test that asks.
func Build(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(envBinaries); dir != "" {
		return dir
	}
	dir := t.TempDir()
	if err := buildInto(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// buildForAll builds into a folder that later calls of Build, in child processes too, find by the environment.
func buildForAll() (cleanup func(), err error) {
	if os.Getenv(envBinaries) != "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "porin-bin-")
	if err != nil {
		return nil, err
	}
	cleanup = sync.OnceFunc(func() { _ = os.RemoveAll(dir) })
	if err := buildInto(dir); err != nil {
		cleanup()
		return nil, err
	}
	return cleanup, os.Setenv(envBinaries, dir)
}

func buildInto(dir string) error {
	for binary, pkg := range map[string]string{"porin-agent": "./cmd/agent", "porin-cni": "./cmd/cni", "porin": "./cmd/porin"} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, binary), pkg)
		cmd.Dir = moduleRoot()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

// moduleRoot is where this file was compiled, less internal/testutil; with -trimpath it is the nearest go.mod above
// the working directory, which go test sets to the package's.
func moduleRoot() string {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	dir, _ := os.Getwd()
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}
