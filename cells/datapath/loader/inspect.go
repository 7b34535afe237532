package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// PinnedProgram is a program below the BPF root.
type PinnedProgram struct {
	Name   string    `json:"name"`
	Digest string    `json:"digest"` // of the object and configuration it was loaded from
	ID     uint32    `json:"id"`
	Tag    string    `json:"tag"` // the kernel's digest of its instructions
	Loaded time.Time `json:"loaded,omitzero"`
}

// PinnedMap is a map below the BPF root.
type PinnedMap struct {
	Name       string `json:"name"`
	ID         uint32 `json:"id"`
	Type       string `json:"type"`
	Entries    int    `json:"entries"`
	MaxEntries uint32 `json:"maxEntries"`
}

// Inspect reads, without an agent, the pins below the root. A missing root has nothing.
func Inspect(root string) ([]PinnedProgram, []PinnedMap, error) {
	cfg := Config{Root: root}
	programs, programsErr := inspectPrograms(cfg.programsDir())
	maps, mapsErr := inspectMaps(cfg.mapsDir())
	return programs, maps, errors.Join(programsErr, mapsErr)
}

// readOnlyPin opens a pin for reading alone, which needs no right to write.
var readOnlyPin = &ebpf.LoadPinOptions{ReadOnly: true}

func inspectPrograms(dir string) (programs []PinnedProgram, err error) {
	err = eachPin(dir, func(path, digest string) error {
		return eachPin(path, func(path, name string) error {
			p, err := inspectProgram(path)
			p.Name, p.Digest = name, digest
			programs = append(programs, p)
			return err
		})
	})
	return programs, err
}

func inspectProgram(path string) (PinnedProgram, error) {
	pinned, err := ebpf.LoadPinnedProgram(path, readOnlyPin)
	if err != nil {
		return PinnedProgram{}, err
	}
	defer pinned.Close()
	p, info, err := newProgram(pinned)
	if err != nil {
		return PinnedProgram{}, err
	}
	out := PinnedProgram{ID: p.ID, Tag: p.Tag}
	if sinceBoot, ok := info.LoadTime(); ok {
		out.Loaded = bootTime().Add(sinceBoot).Round(time.Second)
	}
	return out, nil
}

func inspectMaps(dir string) (maps []PinnedMap, err error) {
	err = eachPin(dir, func(path, name string) error {
		m, err := ebpf.LoadPinnedMap(path, readOnlyPin)
		if err != nil {
			return err
		}
		defer m.Close()
		id, err := idOf(m)
		if err != nil {
			return err
		}
		maps = append(maps, PinnedMap{
			Name: name, ID: id, Type: m.Type().String(), Entries: countEntries(m), MaxEntries: m.MaxEntries(),
		})
		return nil
	})
	return maps, err
}

// countEntries is as right as it can be while others write. An array has all its entries.
func countEntries(m *ebpf.Map) (n int) {
	if m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray {
		return int(m.MaxEntries())
	}
	key := make([]byte, m.KeySize())
	for err := m.NextKey(nil, key); err == nil && n < int(m.MaxEntries()); err = m.NextKey(key, key) {
		n++
	}
	return n
}

// eachPin visits the pins of a folder, in the order of names. Pins that go meanwhile are left out.
func eachPin(dir string, visit func(path, name string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if err := visit(path, entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("inspect %s: %w", path, err)
		}
	}
	return nil
}

// bootTime is the zero of the clock that the kernel dates programs by.
func bootTime() time.Time {
	var sinceBoot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot) // cannot fail for this clock
	return time.Now().Add(-time.Duration(sinceBoot.Nano()))
}
