package endpoint

import (
	"errors"
	"os"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/netns"
)

// Namespace is a container's network namespace while a call for it is under way. It has a route-netlink socket there,
// so that the steps of a creation need not enter it one after the other. It keeps the namespace alive until it is
// closed.
type Namespace struct {
	file   *os.File
	cookie uint64
	handle *netlink.Handle
}

// OpenNamespace takes the file: it is closed with the Namespace, or when OpenNamespace fails. A file that is no network
// namespace, or the agent's own, is netns.ErrNotNetNS or netns.ErrOwn.
func OpenNamespace(file *os.File) (*Namespace, error) {
	n := &Namespace{file: file}
	err := netns.CheckContainer(n.FD())
	if err == nil {
		n.cookie, n.handle, err = netns.Open(n.FD())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return n, nil
}

// FD is a file descriptor of the namespace.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Cookie identifies the namespace until the next boot.
func (n *Namespace) Cookie() uint64 { return n.cookie }

// Netlink is a route-netlink socket in the namespace. Close closes it.
func (n *Namespace) Netlink() *netlink.Handle { return n.handle }

// Close lets go of the namespace.
func (n *Namespace) Close() error {
	n.handle.Close()
	return n.file.Close()
}
