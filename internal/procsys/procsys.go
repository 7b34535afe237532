// Package procsys makes /proc/sys writable for an agent in a container that is not privileged.
package procsys

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

const path = "/proc/sys"

// MakeWritable remounts /proc/sys writable if it is a read-only mount, as container runtimes make it (runtime-spec,
// readonlyPaths). It changes the container's own mount alone. It needs CAP_SYS_ADMIN; AppArmor's profiles of container
// runtimes deny it.
func MakeWritable() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if stat.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	kept := uintptr(stat.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC) // statfs and mount have the same values, and a remount keeps atime
	err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|kept, "")
	if err == nil {
		return nil
	}
	err = fmt.Errorf("remount %s, which is read-only, to write sysctls of the node: %w", path, err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w; a container needs the capability SYS_ADMIN, and the AppArmor profile Unconfined", err)
	}
	return err
}
