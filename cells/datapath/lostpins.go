package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"porin.dev/porin/cells/doctor"
)

// pinned is a map or program of this agent and where the next one looks for it.
type pinned struct {
	name string // below the root
	id   uint32
	read func(pin string) (id uint32, err error)
	pin  func(pin string) error
}

// lostPins finds the maps and programs that the next agent would not find.
func (d *Datapath) lostPins() (findings []doctor.Finding, err error) {
	all, err := d.pinned()
	for _, p := range all {
		id, readErr := p.read(filepath.Join(d.loader.cfg.BPFRoot, p.name))
		detail := fmt.Sprintf("%s is number %d instead of %d", p.name, id, p.id)
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
			detail = p.name + " is not there"
		case readErr != nil:
			err = errors.Join(err, fmt.Errorf("read the pin %s: %w", p.name, readErr))
			continue
		case id == p.id:
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: pinMissing, Subject: "pin " + p.name, Detail: detail,
			Repair: func(context.Context) error { return d.pinAgain(p.name) },
		})
	}
	return findings, err
}

func (d *Datapath) pinned() (all []pinned, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil {
		return nil, ErrNotStarted
	}
	for name, m := range d.loaded.maps.byName() {
		id, idErr := idOf(m)
		all, err = append(all, pinned{filepath.Join("maps", name), id, readMapPin, clonePin(m)}), errors.Join(err, idErr)
	}
	for name, p := range d.loaded.programs.byName() {
		all = append(all, pinned{filepath.Join("programs", d.loaded.digest, name), (*p).id, readProgramPin, clonePin((*p).Program)})
	}
	return all, err
}

// pinAgain pins what is not where the next agent looks for it, in place of what is there.
func (d *Datapath) pinAgain(name string) error {
	all, err := d.pinned()
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.name == name {
			return d.loader.cfg.replacePin(p)
		}
	}
	return nil // the agent was started anew
}

func (c *Config) replacePin(p pinned) error {
	staged, pin := filepath.Join(c.stagingDir(), filepath.Base(p.name)), filepath.Join(c.BPFRoot, p.name)
	if err := errors.Join(makeFolders(c.stagingDir(), filepath.Dir(pin)), absentFile(os.Remove(staged))); err != nil {
		return err
	}
	if err := p.pin(staged); err != nil {
		return err
	}
	if err := os.Rename(staged, pin); err != nil {
		return err
	}
	_, err := removePins(c.stagingDir())
	return err
}

// clonePin pins a copy: the library would move the pin that it remembers, and that is gone.
func clonePin[T interface {
	Clone() (T, error)
	Pin(path string) error
	Close() error
}](of T) func(string) error {
	return func(path string) error {
		clone, err := of.Clone()
		if err != nil {
			return err
		}
		defer clone.Close()
		return clone.Pin(path)
	}
}

func readMapPin(pin string) (uint32, error) {
	m, err := ebpf.LoadPinnedMap(pin, readOnlyPin)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return idOf(m)
}

func idOf(m *ebpf.Map) (uint32, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return uint32(id), nil
}

func readProgramPin(pin string) (uint32, error) {
	program, err := inspectProgram(pin)
	return program.ID, err
}
