package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

// pinnedMaps are the maps that stay when programs come and go.
type pinnedMaps struct {
	endpoints, links, traffic *ebpf.Map
	cpus                      int             // that may ever come up: so many copies has a per-CPU value
	fresh                     map[string]bool // by name: made just now, and not pinned yet
}

// openMaps opens what is pinned and makes what is not, and nobody sees it: what it makes is pinned by publication. A
// map of another size than the one of spec is copied into a map of this size. It returns [ErrIncompatible] for a map
// that the programs of this agent cannot use, or whose entries do not fit.
func openMaps(dir string, spec *ebpf.CollectionSpec) (_ *pinnedMaps, err error) {
	m := &pinnedMaps{fresh: map[string]bool{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for name, to := range m.slots() {
		if *to, m.fresh[name], err = openMap(filepath.Join(dir, name), name, spec.Maps[name]); err != nil {
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	err = m.traffic.Update(abi.NoEndpoint, make([]abi.Traffic, m.cpus), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return nil, fmt.Errorf("make the node's own counters: %w", err)
	}
	return m, nil
}

func openMap(pin, name string, spec *ebpf.MapSpec) (_ *ebpf.Map, fresh bool, err error) {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = newMap(spec)
		return m, true, err
	}
	if err != nil {
		return nil, false, err
	}
	if m.MaxEntries() == spec.MaxEntries {
		err = compatible(m, spec, pin)
		if err != nil {
			m.Close()
			m = nil
		}
		return m, false, err
	}
	defer m.Close()
	resized, err := resize(m, name, spec, pin)
	return resized, true, err
}

func newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	return ebpf.NewMap(spec)
}

// compatible compares all but the size.
func compatible(m *ebpf.Map, spec *ebpf.MapSpec, pin string) error {
	ofThisSize := spec.Copy()
	ofThisSize.MaxEntries = m.MaxEntries()
	if err := ofThisSize.Compatible(m); err != nil {
		return fmt.Errorf("%w: %w; run the agent that made it, or drain the node and remove %s", ErrIncompatible, err, pin)
	}
	return nil
}

func (m *pinnedMaps) slots() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{bpf.Endpoints: &m.endpoints, bpf.Links: &m.links, bpf.Traffic: &m.traffic}
}

func (m *pinnedMaps) byName() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{bpf.Endpoints: m.endpoints, bpf.Links: m.links, bpf.Traffic: m.traffic}
}

func (m *pinnedMaps) close() {
	for _, one := range m.byName() {
		one.Close()
	}
}
