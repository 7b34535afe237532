package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/diskfile"
)

// ReadClasses returns what was reserved for names in the policies that the datapath has under a revision.
type ReadClasses func(revision uint32) (policy.NameClasses, error)

// ClassFiles is a folder where agents leave what they have reserved for names, a file for each revision.
type ClassFiles struct {
	dir string
	log *slog.Logger
}

// NewClassFiles returns those of a folder, which the first write makes.
func NewClassFiles(dir string, log *slog.Logger) ClassFiles { return ClassFiles{dir, log} }

const classSuffix = ".json"

func (f ClassFiles) path(revision uint32) string {
	return filepath.Join(f.dir, fmt.Sprintf("%08x%s", revision, classSuffix))
}

// PublishClasses is that of a [policy.NameExchange]. Policies do not fail for the folder: without the file a proxy learns nothing while no agent is there.
func (f ClassFiles) PublishClasses(c policy.NameClasses, inForce uint32) {
	if err := f.write(c); err != nil {
		f.log.Warn("the proxy will not learn names while this agent is away", "error", err)
	}
	if err := f.removeOthers(c.Revision, inForce); err != nil {
		f.log.Warn("files of previous policies stay", "error", err)
	}
}

func (f ClassFiles) write(c policy.NameClasses) error {
	text, err := json.Marshal(c)
	if err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err == nil {
		err = diskfile.Replace(f.path(c.Revision), text)
	}
	return err
}

func (f ClassFiles) removeOthers(revisions ...uint32) error {
	keep := map[string]bool{}
	for _, revision := range revisions {
		keep[filepath.Base(f.path(revision))] = true
	}
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if name := entry.Name(); !keep[name] {
			errs = append(errs, os.Remove(filepath.Join(f.dir, name)))
		}
	}
	return errors.Join(errs...)
}

// Read is a [ReadClasses].
func (f ClassFiles) Read(revision uint32) (c policy.NameClasses, err error) {
	text, err := os.ReadFile(f.path(revision))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", f.path(revision), err)
	}
	if c.Revision != revision {
		return c, fmt.Errorf("read %s: it has revision %d", f.path(revision), c.Revision)
	}
	return c, nil
}
