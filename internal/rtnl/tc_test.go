package rtnl_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// passAll loads a program that lets everything pass.
func passAll(t *testing.T) (fd int, id uint32) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	progID, _ := info.ID()
	return prog.FD(), uint32(progID)
}

func TestFiltersAreAttachedReplacedAndDetached(t *testing.T) {
	node, _, host := pair(t)
	first, firstID := passAll(t)
	second, secondID := passAll(t)
	in := rtnl.Filter{Link: host.Index, Direction: rtnl.Ingress, Handle: 1, Priority: 1, Name: "from_pod", Program: first}
	out := rtnl.Filter{Link: host.Index, Direction: rtnl.Egress, Handle: 1, Priority: 1, Name: "to_pod", Program: first}

	for range 2 { // the second time changes nothing
		if err := node.Do(rtnl.AddClsact(host.Index), rtnl.ReplaceFilter(in), rtnl.ReplaceFilter(out)); err != nil {
			t.Fatal(err)
		}
	}
	in.Program = second
	if err := node.Do(rtnl.ReplaceFilter(in)); err != nil {
		t.Fatal(err)
	}

	want := func(f rtnl.Filter, id uint32) rtnl.Filter {
		f.Program, f.ProgramID, f.Kind = 0, id, "bpf"
		return f
	}
	for _, wanted := range []rtnl.Filter{want(in, secondID), want(out, firstID)} {
		list, err := node.Filters(host.Index, wanted.Direction)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]rtnl.Filter{wanted}, list); diff != "" {
			t.Errorf("filters at %s (-want +got):\n%s", wanted.Direction, diff)
		}
		var one rtnl.Filter
		if err := node.Do(rtnl.GetFilter(wanted, &one)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, one); diff != "" {
			t.Errorf("filter at %s (-want +got):\n%s", wanted.Direction, diff)
		}
	}

	if err := node.Do(rtnl.DelFilter(in), rtnl.DelClsact(host.Index)); err != nil {
		t.Fatal(err)
	}
	var none rtnl.Filter
	err := node.Do(rtnl.GetFilter(out, &none))
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("get a filter of a link without clsact: error %v, want EINVAL or ENOENT", err)
	}
}
