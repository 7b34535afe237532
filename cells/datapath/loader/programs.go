package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
)

// Programs are the programs of one digest.
type Programs struct {
	FromPod, ToPod, ToUplink, FromUplink *Program
	Adopted                              bool // they were pinned, and not loaded again
}

// Program is a loaded program and what the kernel calls it.
type Program struct {
	*ebpf.Program
	ID  uint32
	Tag string // the kernel's digest of its instructions
}

func newProgram(p *ebpf.Program) (*Program, *ebpf.ProgramInfo, error) {
	info, err := p.Info()
	if err != nil {
		return nil, nil, err
	}
	id, ok := info.ID()
	if !ok {
		return nil, nil, fmt.Errorf("%w: IDs of programs (4.13)", ErrKernel)
	}
	return &Program{Program: p, ID: uint32(id), Tag: info.Tag}, info, nil
}

func (p *Programs) ByName() map[string]**Program {
	return map[string]**Program{bpf.FromPod: &p.FromPod, bpf.ToPod: &p.ToPod, bpf.ToUplink: &p.ToUplink, bpf.FromUplink: &p.FromUplink}
}

func (p *Programs) close() {
	if p == nil {
		return
	}
	for _, one := range p.ByName() {
		if *one != nil {
			(*one).Close()
		}
	}
}

// kernelTypes is the file with the types of the running kernel (BTF).
const kernelTypes = "/sys/kernel/btf/vmlinux"

// loadPrograms loads the programs and pins them in dir, in place of what is there.
func loadPrograms(dir string, spec *ebpf.CollectionSpec, maps *Maps, tryAttach func(*Programs) error) (_ *Programs, err error) {
	if err := errors.Join(probe(), rlimit.RemoveMemlock()); err != nil {
		return nil, err
	}
	loadConntrack()
	spec = spec.Copy()
	delete(spec.Programs, bpf.Sweep)
	delete(spec.Maps, bpf.Recount)
	kernel := btf.NewCache()
	if err := configureConntrack(spec, kernel); err != nil {
		return nil, fmt.Errorf("configure BPF programs: %w", err)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps.ByName(), Cache: kernel})
	if _, missing := os.Stat(kernelTypes); err != nil && missing != nil {
		return nil, fmt.Errorf("load BPF programs: %w: %w: use a kernel with CONFIG_DEBUG_INFO_BTF=y; cause: %w", ErrKernel, missing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	defer collection.Close()
	out := &Programs{}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	for name, to := range out.ByName() {
		if *to, _, err = newProgram(collection.DetachProgram(name)); err != nil {
			return nil, fmt.Errorf("describe BPF program %s: %w", name, err)
		}
	}
	if err := tryAttach(out); err != nil {
		return nil, err
	}
	for name, p := range out.ByName() {
		if err := replaceProgramPin((*p).Program, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("pin BPF program %s: %w", name, err)
		}
	}
	return out, nil
}

// loadSweep loads the program that removes old connections.
func loadSweep(spec *ebpf.CollectionSpec, maps *Maps) (*ebpf.Program, error) {
	spec = spec.Copy()
	for name := range spec.Programs {
		if name != bpf.Sweep {
			delete(spec.Programs, name)
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps.ByName()})
	if err != nil {
		return nil, fmt.Errorf("load BPF program %s: %w", bpf.Sweep, err)
	}
	defer collection.Close()
	return collection.DetachProgram(bpf.Sweep), nil
}

// replaceProgramPin pins the program in place of what bears the name.
func replaceProgramPin(p *ebpf.Program, pin string) error {
	if err := absentFile(os.Remove(pin)); err != nil {
		return err
	}
	return p.Pin(pin)
}

// getStats is IPCTNL_MSG_CT_GET_STATS of linux/netfilter/nfnetlink_conntrack.h.
const getStats = 5

// loadConntrack has the kernel load its connection tracking, where that is a module: programs are linked only with
// functions that are there. Without it they are loaded all the same.
func loadConntrack() {
	request := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|getStats, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, _ = request.Execute(unix.NETLINK_NETFILTER, 0)
}

// configureConntrack tells the programs of the spec whether they can ask the kernel's connection tracking.
func configureConntrack(spec *ebpf.CollectionSpec, kernel *btf.Cache) error {
	present := uint8(0)
	if hasConntrack(kernel) {
		present = 1
	}
	return spec.Variables[bpf.ConntrackPresent].Set(present)
}

func hasConntrack(kernel *btf.Cache) bool {
	var function *btf.Func
	if types, err := kernel.Kernel(); err != nil || types.TypeByName(bpf.ConntrackLookup, &function) == nil {
		return err == nil
	}
	types, err := kernel.Module(bpf.ConntrackModule)
	return err == nil && !errors.Is(types.TypeByName(bpf.ConntrackLookup, &function), btf.ErrNotFound)
}

// asksConntrack reports whether the program calls a function of the kernel: all that it knows are of conntrack. Not
// knowing counts as yes.
func (p *Program) asksConntrack() bool {
	info, err := p.Info()
	if err != nil {
		return true
	}
	instructions, err := info.Instructions()
	if err != nil {
		return true
	}
	for _, i := range instructions {
		if i.IsKfuncCall() {
			return true
		}
	}
	return false
}
