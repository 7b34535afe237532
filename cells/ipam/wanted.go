package ipam

import (
	"maps"
	"slices"
)

// maxStrangers bounds how many names of pools that are not known are remembered.
const maxStrangers = 64

// note remembers that somebody has asked for a pool that is not known.
func (a *allocator) note(name string) {
	if a.mode != ModeMultiPool || slices.Contains(a.strangers, name) {
		return
	}
	if len(a.strangers) == maxStrangers {
		a.strangers = slices.Delete(a.strangers, 0, 1)
	}
	a.strangers = append(a.strangers, name)
}

// Wanted implements [MultiPool].
func (a *allocator) Wanted() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := slices.Clone(a.strangers)
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		if p := a.pools[name]; p.asked || len(p.blocks()) > 0 {
			names = append(names, name)
		}
	}
	return names
}
