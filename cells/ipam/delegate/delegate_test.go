package delegate_test

import (
	"errors"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/delegate"
)

// A type that is no file's name is no plugin's: it never gave anything, and a DEL goes on.
func TestDelBadType(t *testing.T) {
	plugins := delegate.New(delegate.Config{BinDirs: []string{t.TempDir()}})
	for _, name := range []string{"host-local", "../host-local", "/bin/true", "a/b", ".."} {
		err := plugins.Del(t.Context(), delegate.Call{IPAMPlugin: endpoint.IPAMPlugin{Type: name}})
		if !errors.Is(err, delegate.ErrNoPlugin) {
			t.Errorf("%s: %v, want %v", name, err, delegate.ErrNoPlugin)
		}
	}
}
