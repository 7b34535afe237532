package loader

import (
	"errors"
	"os"
	"path/filepath"
)

// PrunePins removes the programs and maps of agents other than the owner of the objects, and names them. A pinned
// object lives on as long as a link or a program uses it.
func (l *Loader) PrunePins(of *Objects) (removed []string, err error) {
	prune := func(dir, what string, isOwn func(name string) bool) {
		names, listErr := namesIn(dir)
		err = errors.Join(err, listErr)
		for _, name := range names {
			if isOwn(name) {
				continue
			}
			if removeErr := os.RemoveAll(filepath.Join(dir, name)); removeErr != nil {
				err = errors.Join(err, removeErr)
				continue
			}
			removed = append(removed, what+name)
		}
	}
	prune(l.cfg.programsDir(), "pinned programs ", func(name string) bool { return name == of.Digest })
	prune(l.cfg.mapsDir(), "pinned map maps/", func(name string) bool { return of.Maps.ByName()[name] != nil })
	prune(l.cfg.stagingDir(), "pinned map staging/", func(string) bool { return false })
	return removed, err
}
