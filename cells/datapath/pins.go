package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

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

// removePins removes a folder of pins and names each. What was pinned lives on as long as a link or a program uses it.
func removePins(dir string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pin := filepath.Join(dir, entry.Name())
		if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed = append(removed, entry.Name())
	}
	return removed, os.Remove(dir)
}
