package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"porin.dev/porin/internal/diskfile"
)

// rulesFile has the rules that were in force last.
type rulesFile struct{ dir string }

func (f rulesFile) path() string { return filepath.Join(f.dir, "proxy-rules.json") }

func (f rulesFile) write(rules snapshot) error {
	text, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	return diskfile.Replace(f.path(), text)
}

// read returns no rules when there is no file.
func (f rulesFile) read() (rules snapshot, err error) {
	text, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return rules, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &rules)
	}
	if err != nil {
		return rules, fmt.Errorf("read %s: %w", f.path(), err)
	}
	return rules, nil
}
