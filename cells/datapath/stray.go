package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
)

// strayDigests are the folders of programs of former agents.
func (l *loader) strayDigests(digest string) (stray []string, err error) {
	return namesIn(l.cfg.programsDir(), func(name string) bool { return name != digest })
}

// strayMaps are the pins, below the root, of maps that no program of this agent uses.
func (l *loader) strayMaps() (stray []string, err error) {
	known := (&pinnedMaps{}).slots()
	for _, dir := range []string{l.cfg.mapsDir(), l.cfg.stagingDir()} {
		names, namesErr := namesIn(dir, func(name string) bool { return dir == l.cfg.stagingDir() || known[name] == nil })
		for _, name := range names {
			stray = append(stray, filepath.Join(filepath.Base(dir), name))
		}
		err = errors.Join(err, namesErr)
	}
	return stray, err
}

// namesIn lists what is in a folder that may not be there.
func namesIn(dir string, which func(name string) bool) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if which(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// ourNames are those of the programs.
var ourNames = map[string]bool{bpf.FromPod: true, bpf.ToPod: true}

// pruneMaps removes the pins of strayMaps.
func (l *loader) pruneMaps() (removed []string, err error) {
	stray, err := l.strayMaps()
	for _, pin := range stray {
		if removeErr := os.Remove(filepath.Join(l.cfg.BPFRoot, pin)); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed = append(removed, "pinned map "+pin)
	}
	return removed, err
}

// strayPrograms are programs of our names that are loaded on our maps, and are none of those that are in use. Other
// agents on the machine, in other network namespaces, have programs of these names on maps of their own.
func strayPrograms(maps *pinnedMaps, inUse map[uint32]bool) (stray []uint32, err error) {
	ours, err := maps.ids()
	if err != nil {
		return nil, err
	}
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, fs.ErrNotExist) {
			return stray, nil
		}
		if err != nil {
			return stray, fmt.Errorf("list loaded programs: %w", err)
		}
		if !inUse[uint32(id)] && isOurs(id, ours) {
			stray = append(stray, uint32(id))
		}
	}
}

// isOurs is false for a program that ends meanwhile.
func isOurs(id ebpf.ProgramID, maps map[ebpf.MapID]bool) bool {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer program.Close()
	if program.Type() != ebpf.SchedCLS {
		return false
	}
	info, err := program.Info()
	if err != nil || !ourNames[info.Name] {
		return false
	}
	used, _ := info.MapIDs()
	for _, m := range used {
		if maps[m] {
			return true
		}
	}
	return false
}
