package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"porin.dev/porin/bpf"
)

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
	clearStaging := func() error { _, err := removePins(cfg.stagingDir()); return err }
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
