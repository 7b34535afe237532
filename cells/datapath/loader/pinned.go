package loader

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/internal/bpfarray"
)

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

// Close closes the maps. Their content stays.
func (m *Maps) Close() { m.close() }
