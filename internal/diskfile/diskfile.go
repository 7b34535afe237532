// Package diskfile replaces small files so that a crash or a power failure leaves the old text or the new one.
package diskfile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// newSuffix ends the name of a file that is being written.
const newSuffix = ".new"

// Replace replaces the file, as a whole or not at all, and returns when text and name are on the disk. The file has
// mode 0600. Its folder exists. Two calls for one path must not run at the same time.
func Replace(path string, text []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceJSON is [Replace] of a value, encoded.
func ReplaceJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return Replace(path, append(text, '\n'))
}

// ReadJSON decodes the file into value. Without a file it returns fs.ErrNotExist.
func ReadJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// SyncDir syncs the names in a folder to the disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
