package plugin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cmd/cni/internal/spec"
)

// errNotNetNS is what a path may be found to be.
var errNotNetNS = errors.New("it is not a network namespace")

// openNetNS opens the container's namespace. It must be one, and not the plugin's own unless that is allowed.
func (t *task) openNetNS() (int, *spec.Error) {
	fd, err := openNSFile(t.NetNS)
	if err == nil && !t.NetNSOverride && isOwn(fd) {
		_ = unix.Close(fd)
		err = errors.New("it is the node's own network namespace, and not a container's")
	}
	if err != nil {
		return -1, &spec.Error{
			Code: spec.BadNetNS, Msg: fmt.Sprintf("open CNI_NETNS %.200q: %v", t.NetNS, err),
			Hint: "the container runtime must set it to the path of the container's network namespace",
		}
	}
	return fd, nil
}

// openNSFile opens any file without waiting for it, and keeps it if it is a network namespace.
func openNSFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		_ = unix.Close(fd)
		return -1, errNotNetNS
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		_ = unix.Close(fd)
		return -1, errNotNetNS
	}
	return fd, nil
}

func isOwn(fd int) bool {
	var own, other unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Fstat(fd, &other) == nil &&
		own.Dev == other.Dev && own.Ino == other.Ino
}
