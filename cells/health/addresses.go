package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/diskfile"
)

// kept is what the node's disk has of its health endpoint.
type kept struct {
	endpoint.Addresses
	Pool string `json:"pool,omitempty"`
}

// addressFile keeps the addresses of the endpoint. "" keeps none.
type addressFile struct{ path string }

// maxAddressFile bounds the read: only the agent writes the file.
const maxAddressFile = 4 << 10

// load returns what was kept; the zero value for nothing.
func (f addressFile) load() (k kept, err error) {
	if f.path == "" {
		return k, nil
	}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil && len(text) > maxAddressFile {
		err = errors.New("too large")
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err == nil {
		err = endpoint.ValidateAddresses(k.Addresses)
	}
	if err != nil {
		return kept{}, fmt.Errorf("read the addresses of the health endpoint in %s: %w", f.path, err)
	}
	return k, nil
}

// save replaces what is kept, and returns when it is on the disk.
func (f addressFile) save(k kept) error {
	if f.path == "" {
		return nil
	}
	text, err := json.Marshal(k)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o750)
	}
	if err == nil {
		err = diskfile.Replace(f.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep the addresses of the health endpoint: %w", err)
	}
	return nil
}
