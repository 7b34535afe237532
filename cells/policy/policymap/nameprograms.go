package policymap

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

// namePrograms write the maps within the kernel, where a process is not suspended: see bpf/names.bpf.c.
type namePrograms struct {
	GiveClass      *ebpf.Program `ebpf:"give_class"`
	RaiseRevisions *ebpf.Program `ebpf:"raise_revisions"`
}

func loadNamePrograms(m Maps) (*namePrograms, error) {
	spec, err := bpf.Names()
	if err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{bpf.Policies: m.Policies, bpf.ActiveCopy: m.ActiveCopy, bpf.Prefixes: m.Prefixes}
	for name, one := range shared {
		spec.Maps[name].MaxEntries = one.MaxEntries()
	}
	p := &namePrograms{}
	err = rlimit.RemoveMemlock()
	if err == nil {
		err = spec.LoadAndAssign(p, &ebpf.CollectionOptions{MapReplacements: shared})
	}
	if err != nil {
		return nil, fmt.Errorf("load the programs that write addresses of names: %w", err)
	}
	return p, nil
}

func (p *namePrograms) close() error {
	return errors.Join(p.GiveClass.Close(), p.RaiseRevisions.Close())
}

// giveClass writes one address, and returns [ErrOtherRevision] without having done so if the maps have another one.
func (p *namePrograms) giveClass(revision uint32, move NameMove) error {
	err := run(p.GiveClass, &abi.ClassWrite{Revision: revision, Class: uint32(move.To), Key: singleKey(move.Address, revision)})
	if errors.Is(err, syscall.ESTALE) {
		return ErrOtherRevision
	}
	return err
}

// raise raises the revisions of endpoints.
func (p *namePrograms) raise(ids []uint32) error {
	raised := &abi.Raised{Count: uint32(len(ids))}
	copy(raised.Ids[:], ids)
	return run(p.RaiseRevisions, raised)
}

// run runs a program with a packet that has a value. What it returns is the error.
func run[V any](p *ebpf.Program, value *V) error {
	code, err := p.Run(&ebpf.RunOptions{Data: unsafe.Slice((*byte)(unsafe.Pointer(value)), unsafe.Sizeof(*value))})
	if err == nil && code != 0 {
		err = syscall.Errno(code)
	}
	return err
}

func singleKey(addr netip.Addr, revision uint32) abi.PrefixKey {
	return prefixKey(netip.PrefixFrom(addr, addr.BitLen()), revision%abi.PolicyCopies)
}
