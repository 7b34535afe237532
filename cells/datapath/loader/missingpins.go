package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// MissingPin is a map or program of this agent that is not pinned where the next one looks for it.
type MissingPin struct {
	Path   string // below the root
	Detail string // "maps/links is not there"
}

// MissingPins finds what the next agent would not find of the objects.
func (l *Loader) MissingPins(of *Objects) (missing []MissingPin, err error) {
	expected, err := of.expectedPins()
	for _, p := range expected {
		id, readErr := p.read(filepath.Join(l.cfg.Root, p.path))
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
			missing = append(missing, MissingPin{p.path, p.path + " is not there"})
		case readErr != nil:
			err = errors.Join(err, fmt.Errorf("read the pin %s: %w", p.path, readErr))
		case id != p.id:
			missing = append(missing, MissingPin{p.path, fmt.Sprintf("%s is number %d instead of %d", p.path, id, p.id)})
		}
	}
	return missing, err
}

// PinAgain pins missing objects, in place of existing ones. The objects may be those of a later start, without such a
// pin.
func (l *Loader) PinAgain(of *Objects, missing MissingPin) error {
	expected, err := of.expectedPins()
	if err != nil {
		return err
	}
	for _, p := range expected {
		if p.path == missing.Path {
			return l.replacePin(p)
		}
	}
	return nil
}

func (l *Loader) replacePin(p expectedPin) error {
	staged, pin := filepath.Join(l.cfg.stagingDir(), filepath.Base(p.path)), filepath.Join(l.cfg.Root, p.path)
	if err := errors.Join(makeFolders(l.cfg.stagingDir(), filepath.Dir(pin)), absentFile(os.Remove(staged))); err != nil {
		return err
	}
	if err := p.pin(staged); err != nil {
		return err
	}
	if err := os.Rename(staged, pin); err != nil {
		return err
	}
	_, err := removePins(l.cfg.stagingDir())
	return err
}

// expectedPin is a map or program of the objects and where the next agent looks for it.
type expectedPin struct {
	path string // below the root
	id   uint32
	read func(pin string) (id uint32, err error)
	pin  func(pin string) error
}

func (o *Objects) expectedPins() (all []expectedPin, err error) {
	for name, m := range o.Maps.ByName() {
		id, idErr := idOf(m)
		all, err = append(all, expectedPin{filepath.Join("maps", name), id, readMapPin, clonePin(m)}), errors.Join(err, idErr)
	}
	for name, p := range o.Programs.ByName() {
		all = append(all, expectedPin{filepath.Join("programs", o.Digest, name), (*p).ID, readProgramPin, clonePin((*p).Program)})
	}
	return all, err
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

func readProgramPin(pin string) (uint32, error) {
	program, err := inspectProgram(pin)
	return program.ID, err
}
