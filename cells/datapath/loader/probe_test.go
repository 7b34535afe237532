package loader_test

import (
	"testing"

	"github.com/cilium/ebpf/features"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

// TestHasTCX: the kernels that tests run on are built with TCX when they are new enough for it.
func TestHasTCX(t *testing.T) {
	testutil.Root(t)
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	const linux6_6 = 6<<16 | 6<<8
	if got, want := loader.HasTCX(), version >= linux6_6; got != want {
		t.Errorf("the kernel %d.%d has TCX: %t, want %t", version>>16, version>>8&255, got, want)
	}
}
