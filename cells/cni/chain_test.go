package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChains(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "05-porin.conflist")
	known := newChains(dir)
	for _, row := range []struct {
		name, plugins string
		refused       bool
	}{
		{"alone", `{"type":"porin-cni"}`, false},
		{"a MAC for all", `{"type":"porin-cni"},{"type":"tuning","mac":"02:00:00:00:00:01"}`, true},
		{"a MAC of the runtime", `{"type":"porin-cni"},{"type":"tuning","capabilities":{"mac":true}}`, true},
		{"other settings", `{"type":"porin-cni"},{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}`, false},
		{"before it is another's interface", `{"type":"tuning","mac":"02:00:00:00:00:01"},{"type":"porin-cni"}`, false},
		{"no interface of Porin", `{"type":"bridge"},{"type":"tuning","mac":"02:00:00:00:00:01"}`, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			list := `{"cniVersion":"1.0.0","name":"porin","plugins":[` + row.plugins + `]}`
			if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it is known
				err := known.check("porin")
				if (err != nil) != row.refused || row.refused && !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want one that names the list: %v", err, row.refused)
				}
			}
			if err := known.check("other"); err != nil {
				t.Errorf("another network: %v", err)
			}
		})
	}
	if err := os.WriteFile(path, []byte(`{"name":"porin"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := known.check("porin"); err != nil {
		t.Errorf("a list that cannot be read: %v", err)
	}
	if err := newChains(filepath.Join(dir, "none")).check("porin"); err != nil {
		t.Errorf("no folder: %v", err)
	}
}
