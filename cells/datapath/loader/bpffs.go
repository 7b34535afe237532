package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultBPFFS is where systems mount the BPF file system.
const defaultBPFFS = "/sys/fs/bpf"

// makeFolders makes folders on a BPF file system.
func makeFolders(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a folder for BPF pins: %w", err)
		}
	}
	return nil
}

// namesIn lists what is in a folder that may not be there.
func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if absentFile(err) != nil {
		return nil, err
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// absentFile takes "no such file" for a success.
func absentFile(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// onBPFFS checks the file system that the path is, or would be made, on.
func onBPFFS(path string) error {
	var stat unix.Statfs_t
	at := path
	err := unix.Statfs(at, &stat)
	for errors.Is(err, fs.ErrNotExist) && at != "/" {
		at = filepath.Dir(at)
		err = unix.Statfs(at, &stat)
	}
	if err != nil {
		return fmt.Errorf("examine %s: %w", at, err)
	}
	if stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	mount := defaultBPFFS
	if path != mount && !strings.HasPrefix(path, mount+"/") {
		mount = filepath.Dir(path)
	}
	return fmt.Errorf("%s is %w: run mount -t bpf bpf %s on the node (systemd does it at boot), or give --bpf-root a folder of one", path, ErrNoBPFFS, mount)
}
