package ipam

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelWithoutIPv6: no container can be attached where a pool has IPv6 addresses and the kernel has no IPv6.
func TestKernelWithoutIPv6(t *testing.T) {
	cfg := DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/29", "fd00::/126"}
	a, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, want := range map[string]string{dir: "", filepath.Join(dir, "if_inet6"): "the kernel has no IPv6"} {
		resources := CapacitySource{a, checkIPv6(file)}.Resources()
		if len(resources) != 2 || resources[0].Err != nil || resources[0].Vital {
			t.Fatalf("resources %+v", resources)
		}
		six := resources[1]
		if got := six.Err; six.Vital != (want != "") || (got != nil) != six.Vital || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("with %s: %+v, want %q", file, six, want)
		}
	}
}
