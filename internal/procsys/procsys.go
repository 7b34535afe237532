// Package procsys makes /proc/sys writable for an agent in a container that is not privileged.
package procsys

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

const path = "/proc/sys"

// MakeWritable remounts /proc/sys writable if it is a read-only mount, as container runtimes make it (runtime-spec, readonlyPaths). It changes the
// container's own mount alone. It needs CAP_SYS_ADMIN; AppArmor's profiles of container runtimes deny it.
func MakeWritable() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if stat.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|keptFlags(stat.Flags), "")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("remount %s, which is read-only, to write sysctls of the node: %w; a container needs the capability SYS_ADMIN, and the AppArmor profile Unconfined", path, err)
	}
	if err != nil {
		return fmt.Errorf("remount %s, which is read-only, to write sysctls of the node: %w", path, err)
	}
	return nil
}

// keptFlags are the mount's other flags. A remount replaces all of them, and kernels refuse to drop some.
func keptFlags(statfs int64) uintptr {
	var flags uintptr
	for is, mount := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if statfs&is != 0 {
			flags |= mount
		}
	}
	return flags
}
