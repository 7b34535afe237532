package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestDHCPRefused: no DHCP server hears what a container sends on its link, so the plugin is not called.
func TestDHCPRefused(t *testing.T) {
	t.Parallel()
	r := newDelegatedRig(t)
	called := filepath.Join(r.node.Dir, "called")
	plugin := "#!/bin/sh\ntouch " + called + "\n"
	if err := os.WriteFile(filepath.Join(r.bin, "dhcp"), []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	network := r.runtime("porin", map[string]any{"type": "dhcp"})
	c := testutil.NewContainer(t)
	_, err := network.Add(c)
	failedWith(t, err, "no layer 2 network behind the links")
	failedAs(t, err, 7)
	failedWith(t, network.Status(), "no layer 2 network behind the links")
	if names := c.LinkNames(t); len(names) != 1 {
		t.Errorf("left in the container: %v", names)
	}
	network.MustDel(t, c)
	if _, err := os.Stat(called); err == nil {
		t.Error("the plugin was called")
	}
	r.nothingLeft()
}
