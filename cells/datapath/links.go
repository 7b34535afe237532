package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// Part is a part of the kernel in which every endpoint has something: its map entries, or what is on its link.
type Part interface {
	reconcile.Part[Entry]
	// Delete removes what Update made, as far as it is there. Update and Delete are not called concurrently for one entry.
	Delete(e Entry) error
}

// Difference is one thing of an endpoint in the kernel that is not as it should be.
type Difference = reconcile.Difference

// Orphan is one thing in the kernel that no endpoint should have.
type Orphan = reconcile.Orphan[Entry]

// Links is what [Step] needs of the node's network interfaces. As a [Part] it is the filters on an endpoint's host end,
// and the routes and neighbour entries that lead there: Update brings the host end up, Delete takes it down, and the
// link stays.
type Links interface {
	Part
	// Link describes an interface, or returns [ErrNoLink].
	Link(index int) (netlink.Link, error)
	// LinkByName is for callers without an index.
	LinkByName(name string) (netlink.Link, error)
	// Forward makes the node forward what comes from the endpoint, and comes before Update.
	Forward(e Entry) error
	// WaitForCarrier returns when both ends pass packets: the host end, and the one of that index in the container's
	// namespace unless namespace is nil.
	WaitForCarrier(ctx context.Context, host, container int, namespace *endpoint.Namespace) error
	// BringDown stops all packets of the interface, except packets that another pod's program redirects to its peer.
	BringDown(index int) error
	// Addresses returns what routes of ours lead to each link, by its index.
	Addresses() (map[int][]netip.Addr, error)
}

// nodeLinks is [Links] in the network namespace of the thread that started it.
type nodeLinks struct {
	handle     *netlink.Handle // nil unless started
	reader     *netlink.Handle // for what is compared and listed, so that no ADD waits for it
	neighbours *nl.Neighbours
	router     *router
	namespace  *os.File
	programs   Part   // on host ends
	addresses  []Part // what a host end that is up has of each address
}

// start opens the sockets and makes the node an IPv4 router. The programs and the namespace, which is the calling
// thread's, must stay open until stop.
func (n *nodeLinks) start(programs *loader.Programs, namespace *os.File, log *slog.Logger) (err error) {
	opened := &nodeLinks{namespace: namespace}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.stop())
		}
	}()
	if opened.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if opened.reader, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if opened.neighbours, err = nl.OpenNeighbours(); err != nil {
		return err
	}
	if opened.router, err = startRouter(namespace, log); err != nil {
		return err
	}
	opened.programs = newHostPrograms(programs, opened.handle, opened.reader)
	opened.addresses = []Part{
		newPodRoutes(opened.handle, opened.reader, opened.router), newPodNeighbours(opened.handle, opened.reader, opened.neighbours),
	}
	*n = *opened
	return nil
}

// stop closes what is open. Nothing may be called any more.
func (n *nodeLinks) stop() (err error) {
	for _, handle := range []*netlink.Handle{n.handle, n.reader} {
		if handle != nil {
			handle.Close()
		}
	}
	if n.neighbours != nil {
		n.neighbours.Close()
	}
	if n.router != nil {
		err = n.router.stop()
	}
	*n = nodeLinks{}
	return err
}

func (n *nodeLinks) Link(index int) (netlink.Link, error) {
	if n.handle == nil {
		return nil, ErrNotStarted
	}
	return linkOrErrNoLink(n.handle.LinkByIndex(index))
}

func (n *nodeLinks) LinkByName(name string) (netlink.Link, error) {
	if n.handle == nil {
		return nil, ErrNotStarted
	}
	return linkOrErrNoLink(n.handle.LinkByName(name))
}

func linkOrErrNoLink(l netlink.Link, err error) (netlink.Link, error) {
	if nl.IsNoLink(err) {
		return nil, ErrNoLink
	}
	return l, err
}

func (n *nodeLinks) Forward(e Entry) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	return n.router.forward(e)
}

// hostEnds lists the interfaces that bear Porin's mark, as far as the kernel gave the whole list.
func (n *nodeLinks) hostEnds() ([]netlink.Link, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	ends, err := link.HostEnds(n.reader)
	return ends, nl.IgnoreInterrupted(err)
}

// Addresses reads them in the routes that have Porin's mark.
func (n *nodeLinks) Addresses() (map[int][]netip.Addr, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	routes, err := listRoutes(n.reader)
	if err != nil {
		return nil, err
	}
	led := map[int][]netip.Addr{}
	for _, r := range routes {
		if dst := nl.Prefix(r.Dst); dst.IsValid() && dst.IsSingleIP() {
			led[r.LinkIndex] = append(led[r.LinkIndex], dst.Addr())
		}
	}
	return led, nil
}

func (n *nodeLinks) WaitForCarrier(ctx context.Context, host, container int, namespace *endpoint.Namespace) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	if err := link.WaitForCarrier(ctx, n.handle, host); err != nil || namespace == nil {
		return err
	}
	return link.WaitForCarrier(ctx, namespace.Netlink(), container)
}

func (n *nodeLinks) BringDown(index int) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	return explain("take down link", index, n.handle.LinkSetDown(nl.LinkAt(index)))
}

// explain says what was refused, and that the link is gone when that is why.
func explain(doing string, index int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s %d: %w: %w", doing, index, ErrNoLink, err)
	}
	return fmt.Errorf("%s %d: %w", doing, index, err)
}
