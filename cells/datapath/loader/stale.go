package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
)

// StalePin is a pin, or the folder of a digest, that this agent has no use for.
type StalePin struct {
	Path    string // below the root: "maps/NAME", "staging/NAME" or "programs/DIGEST"
	Program bool   // it is a folder of programs
}

// StalePins finds the programs and maps of agents other than the owner of the objects.
func (l *Loader) StalePins(of *Objects) (stale []StalePin, err error) {
	isStale := map[string]func(name string) bool{
		l.cfg.programsDir(): func(name string) bool { return name != of.Digest },
		l.cfg.mapsDir():     func(name string) bool { return of.Maps.ByName()[name] == nil },
		l.cfg.stagingDir():  func(string) bool { return true },
	}
	for _, dir := range []string{l.cfg.programsDir(), l.cfg.mapsDir(), l.cfg.stagingDir()} {
		names, namesErr := namesIn(dir)
		err = errors.Join(err, namesErr)
		for _, name := range names {
			if isStale[dir](name) {
				stale = append(stale, StalePin{Path: filepath.Join(filepath.Base(dir), name), Program: dir == l.cfg.programsDir()})
			}
		}
	}
	return stale, err
}

// RemovePin removes a stale pin. A pinned object lives on as long as a link or a program uses it.
func (l *Loader) RemovePin(pin StalePin) error {
	path := filepath.Join(l.cfg.Root, pin.Path)
	if pin.Program {
		_, err := removePins(path)
		return err
	}
	return absentFile(os.Remove(path))
}

// StalePrograms finds programs of our names that are loaded on the maps of the objects, and are not the programs of the
// objects. Other agents on the machine, in other network namespaces, have programs of these names on maps of their own.
func (l *Loader) StalePrograms(of *Objects) (stale []uint32, err error) {
	ours, err := of.Maps.ids()
	if err != nil {
		return nil, err
	}
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, fs.ErrNotExist) {
			return stale, nil
		}
		if err != nil {
			return stale, fmt.Errorf("list loaded programs: %w", err)
		}
		if loaded := uint32(id); !of.Programs.has(loaded) && isOurs(id, ours) {
			stale = append(stale, loaded)
		}
	}
}

func (p *Programs) has(id uint32) bool {
	for _, one := range p.ByName() {
		if (*one).ID == id {
			return true
		}
	}
	return false
}

// ourNames are the names of the programs.
var ourNames = map[string]bool{bpf.FromPod: true, bpf.ToPod: true, bpf.ToUplink: true, bpf.FromUplink: true}

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
