package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

// pinnedMaps are the maps that stay when programs come and go.
type pinnedMaps struct {
	endpoints, links, traffic *ebpf.Map
	cpus                      int // that may ever come up: so many copies has a per-CPU value
}

// openMaps opens what is pinned and makes and pins what is not. It returns [ErrIncompatible] for a map that the
// programs of this agent cannot use.
func openMaps(dir string, spec *ebpf.CollectionSpec) (_ *pinnedMaps, err error) {
	m := &pinnedMaps{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for name, to := range map[string]**ebpf.Map{bpf.Endpoints: &m.endpoints, bpf.Links: &m.links, bpf.Traffic: &m.traffic} {
		if *to, err = openMap(filepath.Join(dir, name), spec.Maps[name]); err != nil {
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	err = m.traffic.Update(abi.NoEndpoint, make([]abi.Traffic, m.cpus), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return nil, fmt.Errorf("make the node's own counters: %w", err)
	}
	return m, nil
}

func openMap(pin string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return newMap(pin, spec)
	}
	if err != nil {
		return nil, err
	}
	if err := spec.Compatible(m); err != nil {
		m.Close()
		return nil, fmt.Errorf("%w: %w; run the agent that made it, or drain the node and remove %s", ErrIncompatible, err, pin)
	}
	return m, nil
}

func newMap(pin string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	if err := m.Pin(pin); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *pinnedMaps) byName() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{bpf.Endpoints: m.endpoints, bpf.Links: m.links, bpf.Traffic: m.traffic}
}

func (m *pinnedMaps) close() {
	for _, one := range m.byName() {
		one.Close()
	}
}

// pinnedPrograms are the programs of one digest.
type pinnedPrograms struct {
	fromPod, toPod *program
	adopted        bool
}

// program is a loaded program and what the kernel calls it.
type program struct {
	*ebpf.Program
	id  uint32
	tag string
}

func newProgram(p *ebpf.Program) (*program, *ebpf.ProgramInfo, error) {
	info, err := p.Info()
	if err != nil {
		return nil, nil, err
	}
	id, ok := info.ID()
	if !ok {
		return nil, nil, fmt.Errorf("%w: IDs of programs (4.13)", ErrKernel)
	}
	return &program{Program: p, id: uint32(id), tag: info.Tag}, info, nil
}

func (p *pinnedPrograms) close() {
	for _, one := range []*program{p.fromPod, p.toPod} {
		if one != nil {
			one.Close()
		}
	}
}

// removePins removes a folder of pins. What was pinned lives on as long as a link uses it.
func removePins(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(dir)
}
