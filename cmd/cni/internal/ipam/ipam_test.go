package ipam_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cmd/cni/internal/ipam"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// install puts a file into a new folder.
func install(t *testing.T, name string, mode os.FileMode) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFind(t *testing.T) {
	t.Chdir(install(t, "here", 0o700)) // which no empty part of a list means
	plugin, text, self := install(t, "fake", 0o700), install(t, "fake", 0o600), t.TempDir()
	if err := os.Symlink("/proc/self/exe", filepath.Join(self, "porin-cni")); err != nil {
		t.Fatal(err)
	}
	list := func(dirs ...string) string { return strings.Join(dirs, ":") }
	for _, c := range []struct{ name, path, fault string }{
		{"fake", plugin, ""},
		{"fake", list("/nowhere", "", text, plugin), ""},
		{"fake", text, "it is not in CNI_PATH="},
		{"fake", "", "it is not in CNI_PATH="},
		{"here", list("", ""), "it is not in CNI_PATH="},
		{".", plugin, "it is not in CNI_PATH="},
		{"..", plugin, "it is not in CNI_PATH="},
		{"fake\x00", plugin, "it is not in CNI_PATH="},
		{filepath.Join(plugin, "fake"), plugin, "a type has no path"},
		{"../fake", plugin, "a type has no path"},
		{"porin-cni", list(self, plugin), "it is this plugin itself"},
	} {
		_, fault := ipam.Find(c.name, c.path)
		switch {
		case c.fault == "" && fault != nil, c.fault != "" && (fault == nil || fault.Code != spec.BadConfig || !strings.Contains(fault.Msg, c.fault)):
			t.Errorf("%q in %q: %v, want %q", c.name, c.path, fault, c.fault)
		}
	}
}

// TestTheEnvironmentIsThatOfTheCaller but for the command, of which there is one.
func TestTheEnvironmentIsThatOfTheCaller(t *testing.T) {
	for _, dir := range []string{"/usr/bin", "/bin"} {
		p, fault := ipam.Find("env", dir)
		if fault != nil {
			continue
		}
		p.Env, p.Stderr, p.Broken = []string{"CNI_COMMAND=ADD", "CNI_IFNAME=eth0", "CNI_COMMAND=CHECK", "X="}, 2, spec.TryAgain
		before := slices.Clone(p.Env)
		_, err := p.Add(time.Now().Add(10 * time.Second)) // which prints what it is given
		want := `its answer "CNI_IFNAME=eth0\nX=\nCNI_COMMAND=ADD\n"`
		if err == nil || !strings.Contains(err.Error(), want) || !slices.Equal(p.Env, before) {
			t.Errorf("%v, want %s; the environment is %q now", err, want, p.Env)
		}
		return
	}
	t.Error("there is no program env")
}
