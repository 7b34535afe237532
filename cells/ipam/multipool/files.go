package multipool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/flock"
)

// The files in Config.Dir.
const (
	checkpointFile = "multipool.json"
	keyFile        = "node-key"
)

// loadKey reads the node's key, or makes it.
func loadKey(dir string) (string, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(dir)
	}
	if err != nil {
		return "", fmt.Errorf("read the node's key: %w", err)
	}
	id := cluster.NodeID{Name: "x", Key: string(text[:max(0, len(text)-1)])}
	if err := id.Validate(); err != nil {
		return "", fmt.Errorf("read the node's key %s: %w", path, err)
	}
	return id.Key, nil
}

// newKey replaces the node's key.
func newKey(dir string) (string, error) {
	key := cluster.NewKey()
	return key, diskfile.Replace(filepath.Join(dir, keyFile), []byte(key+"\n"))
}

// ErrFolderInUse is returned when another agent runs with the same checkpoint.
var ErrFolderInUse = fault.New(fault.Conflict, "another process has it open; one agent a store-dir: end the other one or give this one its own")

// lockFolder keeps other processes from the folder until unlock, or until this process ends. It makes the folder if
// there is none.
func lockFolder(path string) (unlock func() error, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the node's key: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the node's key: %w", err)
	}
	err = flock.Try(dir)
	if errors.Is(err, flock.ErrLocked) {
		err = ErrFolderInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder of the node's key %s: %w", path, err), dir.Close())
	}
	return dir.Close, nil
}

const machineIDFile = "/etc/machine-id"

// machineID is "" when the machine has no ID that outlives a boot. It is a hash, because the ID itself is confidential
// (machine-id(5)).
func machineID() string {
	var fs unix.Statfs_t
	if unix.Statfs(machineIDFile, &fs) != nil || fs.Type == unix.TMPFS_MAGIC { // systemd makes another one at each boot
		return ""
	}
	text, err := os.ReadFile(machineIDFile)
	if err != nil || len(text) < 32 { // 32 digits, but for "uninitialized" or nothing
		return ""
	}
	sum := sha256.Sum256(append([]byte("porin:"), text...))
	return hex.EncodeToString(sum[:8])
}
