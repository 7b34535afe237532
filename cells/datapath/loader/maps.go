package loader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/bpfarray"
)

// Maps are the maps that stay when programs come and go.
type Maps struct {
	Endpoints, Links, Passed, Drops   *ebpf.Map
	Connections, Slots, Usage, Limits *ebpf.Map
	Policies, ActiveCopy              *ebpf.Map
	Addresses, Prefixes, Tables, Rows *ebpf.Map
	Unmanaged, RemoteBlocks           *ebpf.Map
	ProxyLink, Redirects              *ebpf.Map
	RedirectTurns, RedirectCounts     *ebpf.Map
	FlowEvents, EventBudgets          *ebpf.Map
	EventShares, DeniedCounts         *ebpf.Map
	KeyQueue, Expirer                 *ebpf.Map
	CPUs                              int             // that may ever come up: a per-CPU value has so many copies
	unpinned                          map[string]bool // by name: made just now
}

// openMaps opens what is pinned and makes what is not, and pins nothing: publish does. A
// map of another size, or with other flags, than the one of spec is copied. It returns [ErrIncompatible] for a map
// that the programs of this agent cannot use, or whose entries do not fit.
func openMaps(dir string, spec *ebpf.CollectionSpec) (_ *Maps, err error) {
	m := &Maps{unpinned: map[string]bool{}}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if m.CPUs, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	pointers := m.pointers()
	for _, name := range bpf.MapNames() {
		to := pointers[name]
		if *to, m.unpinned[name], err = openMap(filepath.Join(dir, name), name, spec.Maps[name]); err != nil {
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	if m.unpinned[bpf.Connections] != m.unpinned[bpf.Usage] { // one counts the entries of the other
		for _, name := range []string{bpf.Connections, bpf.Usage} {
			to := m.pointers()[name]
			(*to).Close()
			if *to, err = newMap(spec.Maps[name]); err != nil {
				return nil, fmt.Errorf("make map %s: %w", name, err)
			}
			m.unpinned[name] = true
		}
	}
	for _, one := range m.ByName() {
		if err := bpfarray.Mmap(one); err != nil {
			return nil, err
		}
	}
	err = m.Drops.Update(abi.NoEndpoint, make([]abi.Drops, m.CPUs), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return nil, fmt.Errorf("make the node's own counters: %w", err)
	}
	return m, nil
}

func openMap(pin, name string, spec *ebpf.MapSpec) (_ *ebpf.Map, unpinned bool, err error) {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = newMap(spec)
		return m, true, err
	}
	if err != nil {
		return nil, false, err
	}
	if spec.Compatible(m) == nil {
		return m, false, nil
	}
	defer m.Close()
	copied, err := copyMap(m, name, spec, pin)
	return copied, true, err
}

func newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	return ebpf.NewMap(spec)
}

// compatible compares all but size and flags.
func compatible(m *ebpf.Map, spec *ebpf.MapSpec, pin string) error {
	ofThisKind := spec.Copy()
	ofThisKind.MaxEntries, ofThisKind.Flags = m.MaxEntries(), m.Flags()
	if err := ofThisKind.Compatible(m); err != nil {
		return fmt.Errorf("%w: %w; run the agent that made it, or drain the node and remove %s", ErrIncompatible, err, pin)
	}
	return nil
}

func (m *Maps) pointers() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		bpf.Endpoints: &m.Endpoints, bpf.Links: &m.Links, bpf.Passed: &m.Passed, bpf.Drops: &m.Drops,
		bpf.Connections: &m.Connections, bpf.Slots: &m.Slots, bpf.Usage: &m.Usage, bpf.Limits: &m.Limits,
		bpf.Policies: &m.Policies, bpf.ActiveCopy: &m.ActiveCopy,
		bpf.Addresses: &m.Addresses, bpf.Prefixes: &m.Prefixes, bpf.Tables: &m.Tables, bpf.Rows: &m.Rows, bpf.Unmanaged: &m.Unmanaged, bpf.RemoteBlocks: &m.RemoteBlocks,
		bpf.ProxyLink: &m.ProxyLink, bpf.Redirects: &m.Redirects, bpf.RedirectTurns: &m.RedirectTurns, bpf.RedirectCounts: &m.RedirectCounts,
		bpf.FlowEvents: &m.FlowEvents, bpf.EventBudgets: &m.EventBudgets, bpf.EventShares: &m.EventShares, bpf.DeniedCounts: &m.DeniedCounts,
		bpf.KeyQueue: &m.KeyQueue, bpf.Expirer: &m.Expirer,
	}
}

// ByName returns the maps by the names that package bpf has.
func (m *Maps) ByName() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{}
	for name, one := range m.pointers() {
		all[name] = *one
	}
	return all
}

// Close closes the maps. Their content stays.
func (m *Maps) Close() {
	for _, one := range m.ByName() {
		if one != nil {
			one.Close()
		}
	}
}

func (m *Maps) ids() (map[ebpf.MapID]bool, error) {
	ids := map[ebpf.MapID]bool{}
	for name, one := range m.ByName() {
		id, err := idOf(one)
		if err != nil {
			return nil, fmt.Errorf("describe map %s: %w", name, err)
		}
		ids[ebpf.MapID(id)] = true
	}
	return ids, nil
}

func idOf(m *ebpf.Map) (uint32, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return uint32(id), nil
}

// OpenPinned opens maps by name that an agent has pinned below the root, for a process that shares them with it. Other
// fields of the answer are nil. It returns [fs.ErrNotExist] before an agent has run, and [ErrIncompatible] when that
// agent's maps are laid out otherwise.
func OpenPinned(root string, names ...string) (_ *Maps, err error) {
	spec, err := bpf.Endpoint()
	if err != nil {
		return nil, err
	}
	m := &Maps{}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	pointers := m.pointers()
	for _, name := range names {
		pin := filepath.Join(Config{Root: root}.mapsDir(), name)
		opened, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
		if err := compatible(opened, spec.Maps[name], pin); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		*pointers[name] = opened
		if err := bpfarray.Mmap(opened); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// publish pins each new map in place of the map with its name: in the staging folder first, then by a rename, which
// replaces it at once. An agent that ends between two of the operations leaves some maps of the new size and some of
// the old one, each with all its entries, and the next start goes on from there, to whichever size. Programs that use
// the old maps keep them until they go themselves.
func (m *Maps) publish(ctx context.Context, cfg Config) error {
	for _, operation := range m.publication(cfg) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pin maps: %w", err)
		}
		if err := operation(); err != nil {
			return fmt.Errorf("pin maps: %w", err)
		}
	}
	return nil
}

func (m *Maps) publication(cfg Config) (operations []func() error) {
	// The staged maps of a killed agent may be older than the pinned ones.
	clearStaging := func() error { return os.RemoveAll(cfg.stagingDir()) }
	operations = append(operations, clearStaging)
	// Usage counts the entries of Connections: its pin goes first and comes last, so that the two are never of different
	// starts.
	if m.unpinned[bpf.Usage] {
		operations = append(operations, func() error { return absentFile(os.Remove(filepath.Join(cfg.mapsDir(), bpf.Usage))) })
	}
	names := slices.DeleteFunc(bpf.MapNames(), func(name string) bool { return name == bpf.Usage })
	for _, name := range append(names, bpf.Usage) {
		one := m.ByName()[name]
		if !m.unpinned[name] {
			continue
		}
		staged, pin := filepath.Join(cfg.stagingDir(), name), filepath.Join(cfg.mapsDir(), name)
		operations = append(operations,
			func() error { return makeFolders(cfg.stagingDir()) },
			func() error { return one.Pin(staged) },
			func() error { return os.Rename(staged, pin) },
			clearStaging,
		)
	}
	return operations
}
