package loader

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"porin.dev/porin/bpf"
)

// errNotOurs is why a pinned program is not adopted.
var errNotOurs = errors.New("pinned program is another than this agent would load")

// adopt takes over the programs that are pinned in dir, when they are the spec's: their names, the maps they use
// and the configuration they were loaded with say so, not the path. The configuration has the digest of object and
// configuration, and is frozen. The kernel's digest of their instructions does not help: it is another one on every
// kernel, as they call functions of the kernel by number. Programs that were loaded together have one configuration:
// the kernel's abilities may differ between two starts.
func adopt(dir string, spec *ebpf.CollectionSpec, maps *Maps) (_ *Programs, err error) {
	out := &Programs{Adopted: true}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	configurations := map[ebpf.MapID]bool{}
	for name, to := range out.ByName() {
		var configuration ebpf.MapID
		if *to, configuration, err = adoptProgram(filepath.Join(dir, name), spec, name, maps); err != nil {
			return nil, fmt.Errorf("adopt BPF program %s: %w", name, err)
		}
		configurations[configuration] = true
	}
	if len(configurations) != 1 {
		return nil, fmt.Errorf("adopt BPF programs: %w: they were not loaded together", errNotOurs)
	}
	return out, nil
}

func adoptProgram(pin string, spec *ebpf.CollectionSpec, name string, maps *Maps) (_ *Program, configuration ebpf.MapID, err error) {
	pinned, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		return nil, 0, err
	}
	p, info, err := newProgram(pinned)
	if err == nil {
		configuration, err = verify(info, spec, name, maps)
	}
	if err != nil {
		pinned.Close()
		return nil, 0, err
	}
	return p, configuration, nil
}

// verify compares a loaded program with its specification, and returns the map that has its configuration.
func verify(info *ebpf.ProgramInfo, spec *ebpf.CollectionSpec, name string, maps *Maps) (configuration ebpf.MapID, err error) {
	want := spec.Programs[name]
	if info.Type != want.Type {
		return 0, fmt.Errorf("%w: its type is %s", errNotOurs, info.Type)
	}
	if info.Name != name {
		return 0, fmt.Errorf("%w: its name is %s", errNotOurs, info.Name)
	}
	used, ok := info.MapIDs()
	if !ok {
		return 0, fmt.Errorf("%w: the kernel does not say which maps it uses", errNotOurs)
	}
	ours, err := maps.ids()
	if err != nil {
		return 0, err
	}
	for _, id := range used {
		if ours[id] {
			continue
		}
		if err := verifyConfiguration(id, spec); err != nil {
			return 0, err
		}
		configuration = id
	}
	if configuration == 0 {
		return 0, fmt.Errorf("%w: it has no configuration", errNotOurs)
	}
	return configuration, nil
}

// verifyConfiguration accepts the one map that is not pinned: the read-only data, when it is what we would set.
func verifyConfiguration(id ebpf.MapID, spec *ebpf.CollectionSpec) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	var data []byte
	if !info.Frozen() || m.Type() != ebpf.Array || m.Lookup(uint32(0), &data) != nil {
		return fmt.Errorf("%w: it uses map %d (%s), which is not pinned", errNotOurs, id, info.Name)
	}
	for name, v := range spec.Variables {
		if name == bpf.ConntrackPresent { // as it was when they were loaded
			continue
		}
		if end := v.Offset + v.Size(); int(end) > len(data) || !bytes.Equal(data[v.Offset:end], v.Value) {
			return fmt.Errorf("%w: %s is set differently", errNotOurs, v.Name)
		}
	}
	return nil
}
