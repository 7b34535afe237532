package nl

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Neighbours reads single neighbour entries of a network namespace. The library only lists them, and the kernel's list
// is of all interfaces: for each of a node's endpoints in turn that would be quadratic.
type Neighbours struct{ socket *nl.SocketHandle }

// OpenNeighbours opens a socket in the network namespace of the calling thread. The caller closes it.
func OpenNeighbours() (*Neighbours, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a route-netlink socket: %w", err)
	}
	return &Neighbours{&nl.SocketHandle{Socket: socket}}, nil
}

// Close closes the socket.
func (n *Neighbours) Close() { n.socket.Socket.Close() }

// Get reads the entry of an address on the interface: unix.ENOENT when there is none, unix.ENODEV without the
// interface. Linux 5.0 and later.
func (n *Neighbours) Get(link int, addr netip.Addr) (*netlink.Neigh, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: n.socket}
	request.AddData(&netlink.Ndmsg{Family: uint8(FamilyOf(addr)), Index: uint32(link)})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, addr.AsSlice()))
	entries, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, unix.ENOENT
	}
	return netlink.NeighDeserialize(entries[0])
}
