package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/internal/testutil"
)

// previousDigest is where the programs of a previous version of the agent are pinned.
const previousDigest = "0123456789abcdef"

// previousVersion makes the kernel look as another version of the agent left it: programs of another digest at every
// link, on the same maps. The agent does not run meanwhile. It returns the programs' IDs.
func (r *rig) previousVersion() (ids []ebpf.ProgramID) {
	r.Helper()
	spec, err := bpf.Endpoint()
	if err == nil {
		err = spec.Variables[bpf.GatewayIPv4].Set([4]byte{169, 254, 9, 9})
	}
	if err != nil {
		r.Fatal(err)
	}
	spec.Maps[bpf.Recount].MaxEntries = 1
	programs := filepath.Join(r.node.BPFRoot, "programs")
	if err := errors.Join(os.RemoveAll(programs), os.MkdirAll(filepath.Join(programs, previousDigest), 0o700)); err != nil {
		r.Fatal(err)
	}
	maps := r.pinnedMaps(spec)
	// As that agent would have configured them: without conntrack, a connection by a Service is nobody's.
	if err := errors.Join(spec.Variables[bpf.KeyQueueMask].Set(maps[bpf.KeyQueue].MaxEntries()-1), spec.Variables[bpf.ConntrackPresent].Set(uint8(1))); err != nil {
		r.Fatal(err)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil { // a kernel that has no such function
		_ = spec.Variables[bpf.ConntrackPresent].Set(uint8(0))
		collection, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	}
	if err != nil {
		r.Fatal(err)
	}
	defer collection.Close()
	for name, program := range collection.Programs {
		info, err := program.Info()
		if err == nil {
			err = program.Pin(filepath.Join(programs, previousDigest, name))
		}
		if err != nil {
			r.Fatal(err)
		}
		id, _ := info.ID()
		ids = append(ids, id)
	}
	r.attach(collection)
	return ids
}

func (r *rig) pinnedMaps(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	r.Helper()
	maps := map[string]*ebpf.Map{}
	for _, name := range bpf.MapNames() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(r.node.BPFRoot, "maps", name), nil)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { m.Close() })
		maps[name], spec.Maps[name].MaxEntries = m, m.MaxEntries()
	}
	return maps
}

// attach puts the programs in the place of those at every host end.
func (r *rig) attach(collection *ebpf.Collection) {
	r.Helper()
	sides := map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS}
	for _, at := range r.inspect().Attachments {
		filters, err := r.node.Filters(at.IfIndex, sides[at.Direction])
		if err == nil && len(filters) == 0 {
			r.attachTCX(at.IfIndex, at.Name, collection.Programs[at.Name])
			continue
		}
		if err != nil || len(filters) != 1 {
			r.Fatalf("filters of %s: %v, %v", at.IfName, filters, err)
		}
		filter, ok := filters[0].(*netlink.BpfFilter)
		if !ok {
			r.Fatalf("filter of %s: %+v", at.IfName, filters[0])
		}
		filter.Fd = collection.Programs[at.Name].FD()
		if err := r.node.Netlink(r).FilterReplace(filter); err != nil {
			r.Fatal(err)
		}
	}
}

// attachTCX puts a program in the place of the one with its name on an uplink (Linux 6.6).
func (r *rig) attachTCX(index int, name string, program *ebpf.Program) {
	r.Helper()
	hook := map[string]ebpf.AttachType{bpf.FromUplink: ebpf.AttachTCXIngress, bpf.ToUplink: ebpf.AttachTCXEgress}[name]
	err := r.node.Do(func() error {
		there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: hook})
		if err != nil {
			return err
		}
		if len(there.Programs) != 1 {
			return fmt.Errorf("%d programs, want one", len(there.Programs))
		}
		before, err := ebpf.NewProgramFromID(there.Programs[0].ID)
		if err != nil {
			return err
		}
		defer before.Close()
		return link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: program, Attach: hook, Anchor: link.ReplaceProgram(before)})
	})
	if err != nil {
		r.Fatalf("%s of device %d: %v", name, index, err)
	}
}

// nothingOf checks that programs are neither attached, nor pinned, nor in the kernel.
func (r *rig) nothingOf(previous []ebpf.ProgramID) {
	r.Helper()
	if _, err := os.Stat(filepath.Join(r.node.BPFRoot, "programs", previousDigest)); !errors.Is(err, os.ErrNotExist) {
		r.Errorf("the pins of the previous version: %v", err)
	}
	found := r.inspect()
	if len(found.Programs) != 4 || len(found.Attachments) != 4 {
		r.Errorf("found %+v", found)
	}
	for _, id := range previous {
		testutil.Eventually(r, func() error { // the kernel frees it when no CPU runs it any more
			program, err := ebpf.NewProgramFromID(id)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			program.Close()
			return fmt.Errorf("program %d is in the kernel: %v", id, err)
		})
	}
}
