package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// install copies this program to the folder that the arguments name. It is the init step of a DaemonSet: its message is
// one line.
func (p process) install(arguments []string) int {
	message, err := "", errors.New("usage: porin-cni install DIR, with an absolute path")
	if len(arguments) == 1 && filepath.IsAbs(arguments[0]) {
		message, err = installInto(arguments[0])
	}
	if err != nil {
		_, _ = p.stderr.Write([]byte("porin-cni install: " + err.Error() + "\n"))
		return 1
	}
	return p.print([]byte(message), nil)
}

// installInto replaces dir/porin-cni by a rename, as runtimes start it at any moment. It leaves a file alone that is
// the same already.
func installInto(dir string) (string, error) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path, unfinished := filepath.Join(dir, "porin-cni"), filepath.Join(dir, ".porin-cni.new")
	_ = os.Remove(unfinished) // of an interrupted run
	if isInstalled(path, program) {
		return path + " is there already", nil
	}
	err = writeProgram(unfinished, program)
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		_ = os.Remove(unfinished)
		return "", fmt.Errorf("%w%s", err, installAdvice(err))
	}
	return path + " is installed", nil
}

func isInstalled(path string, program []byte) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o755 || info.Size() != int64(len(program)) {
		return false
	}
	content, err := os.ReadFile(path)
	return err == nil && bytes.Equal(content, program)
}

// writeProgram returns when the file is on disk, so that the rename never publishes half a file, even when the machine
// crashes.
func writeProgram(path string, program []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = file.Write(program)
	return cmp.Or(err, file.Chmod(0o755), file.Sync(), file.Close())
}

func installAdvice(err error) string {
	switch {
	case errors.Is(err, unix.EROFS):
		return ": mount the folder writable, or give another one to the container runtime and to porin-cni"
	case errors.Is(err, unix.ENOSPC):
		return ": free disk space on the node"
	case errors.Is(err, unix.EACCES):
		return ": give the folder to root (chown root), as this container may not write to folders of other users"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return ": name the folder from which the container runtime starts CNI plugins; it must exist"
	}
	return ""
}
