package health

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
)

// boundNamespace is a network namespace that is bound to a file, and so outlives the process. A file that is no
// namespace counts as missing: after a boot, or in another mount namespace, the file may be there without it.
type boundNamespace struct{ path string }

// errNoNamespace is returned when there is no namespace at the path.
var errNoNamespace = errors.New("its network namespace is not there")

// open returns the namespace, and its cookie.
func (p boundNamespace) open() (file *os.File, cookie uint64, err error) {
	file, err = os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, errNoNamespace
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open the network namespace of the health endpoint: %w", err)
	}
	if err = netns.CheckContainer(int(file.Fd())); err != nil {
		err = fmt.Errorf("%w: %s: %w", errNoNamespace, p.path, err)
	} else {
		cookie, err = netns.Cookie(int(file.Fd()))
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, cookie, nil
}

// make makes a namespace, in place of an existing one.
func (p boundNamespace) make() (*os.File, error) {
	if err := p.remove(); err != nil {
		return nil, err
	}
	err := os.MkdirAll(filepath.Dir(p.path), 0o700)
	if err == nil {
		err = os.WriteFile(p.path, nil, 0o600)
	}
	if err == nil {
		err = netns.InNew(func() error { return unix.Mount("/proc/thread-self/ns/net", p.path, "", unix.MS_BIND, "") })
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(p.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a network namespace for the health endpoint at %s: %w", p.path, err), p.remove())
	}
	return file, nil
}

// remove releases the namespace: it ends with its last holder. None is a success.
func (p boundNamespace) remove() error {
	for { // something may be bound over it
		err := unix.Unmount(p.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", p.path, err)
		}
	}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveNamespace ends the network namespace of a health endpoint whose agent does not run. It returns its path, "" if
// there is none.
func RemoveNamespace(cfg Config) (path string, err error) {
	p := boundNamespace{cfg.namespacePath()}
	if _, err := os.Lstat(p.path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return p.path, p.remove()
}
