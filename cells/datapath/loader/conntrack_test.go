package loader_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"porin.dev/porin/cells/datapath/loader"
)

// The kernels that Porin is tested on can be asked for connections, whether their tracking is a module or not.
func TestConntrackCanBeAsked(t *testing.T) {
	n := newNode(t)
	for _, how := range []string{"loaded", "adopted"} {
		objects := n.load(t)
		if missing := strings.Join(objects.MissingFeatures(), "; "); strings.Contains(missing, "bpf_skb_ct_lookup") {
			t.Errorf("%s: missing are %s", how, missing)
		}
		objects.Close()
	}
}

// Without the function of the kernel that is said.
func TestConntrackCannotBeAsked(t *testing.T) {
	n := newNode(t)
	objects := n.load(t)
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	must(t, err)
	defer other.Close()
	was := objects.Programs.FromPod
	objects.Programs.FromPod = &loader.Program{Program: other}
	defer func() { objects.Programs.FromPod = was }()
	if missing := strings.Join(objects.MissingFeatures(), "; "); !strings.Contains(missing, "bpf_skb_ct_lookup") {
		t.Errorf("missing are %s", missing)
	}
}
