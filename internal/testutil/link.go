package testutil

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
)

// Link reads the interface of that name.
func (n *Namespace) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := n.Netlink(t).LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return link
}

// HasLink reports whether the namespace has an interface of that index.
func (n *Namespace) HasLink(t testing.TB, index int) bool {
	t.Helper()
	_, err := n.Netlink(t).LinkByIndex(index)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !missing {
		t.Fatalf("link %d: %v", index, err)
	}
	return err == nil
}

// LinkNames lists the names of the interfaces.
func (n *Namespace) LinkNames(t testing.TB) []string {
	t.Helper()
	links, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	return Names(links)
}

// Names are the names of the interfaces.
func Names(links []netlink.Link) (names []string) {
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names
}

// HostLink reads the node's end of the container's attachment.
func (n *Node) HostLink(t testing.TB, c *Container) netlink.Link {
	t.Helper()
	return n.Link(t, v1.HostInterfaceName(c.ID, c.IfName))
}

// LinkAt names an interface by its index, for the library's functions that change one.
func LinkAt(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// IsUp reports whether the interface is up.
func IsUp(link netlink.Link) bool { return link.Attrs().Flags&net.FlagUp != 0 }

// MAC is a link address that begins with those bytes, and is 0 after them.
func MAC(first ...byte) net.HardwareAddr {
	var mac [6]byte
	copy(mac[:], first)
	return mac[:]
}

// Veth describes a veth pair.
type Veth struct {
	Name     string
	MAC      net.HardwareAddr
	Peer     *Namespace // where the other end is made
	PeerName string
	PeerMAC  net.HardwareAddr
	MTU      int // of both ends; 0 for the kernel's default
}

// AddVeth makes a veth pair and returns the end in this namespace. This end is up, the other one is down; the other
// one's index is the ParentIndex of this one.
func (n *Namespace) AddVeth(v Veth) (netlink.Link, error) {
	handle, err := n.netlink()
	if err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.Flags = v.Name, v.MAC, v.MTU, net.FlagUp
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1 // as Porin makes them
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr, pair.PeerNamespace = v.PeerName, v.PeerMAC, netlink.NsFd(v.Peer.FD())
	if err := handle.LinkAdd(pair); err != nil {
		return nil, err
	}
	return handle.LinkByName(v.Name)
}
