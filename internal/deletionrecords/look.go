package deletionrecords

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Look returns the paths of the waiting records, and of records that were set aside as unreadable. It takes no lock, so
// it may miss a record that is being written. A folder that is not there is empty.
func Look(dir string) (waiting, unreadable []string, err error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		switch {
		case strings.HasSuffix(path, recordSuffix):
			waiting = append(waiting, path)
		case strings.HasSuffix(path, badSuffix):
			unreadable = append(unreadable, path)
		}
	}
	return waiting, unreadable, err
}
