package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// nodeLinks is [Links] in the network namespace of the thread that started it.
type nodeLinks struct {
	log        *slog.Logger
	node       *netlink.Handle // nil unless started
	lists      *netlink.Handle // for long lists, so that nobody else waits for them
	neighbours *nl.Neighbours
	router     *router
	filters    [2]netlink.BpfFilter // less their LinkIndex
}

// start opens the sockets and makes the node an IPv4 router. The programs and the namespace, which is the calling thread's,
// must stay open until stop.
func (n *nodeLinks) start(programs *pinnedPrograms, namespace *os.File) error {
	node, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	lists, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		node.Close()
		return err
	}
	neighbours, err := nl.OpenNeighbours()
	if err != nil {
		node.Close()
		lists.Close()
		return err
	}
	router, err := startRouter(namespace, n.log)
	if err != nil {
		node.Close()
		lists.Close()
		neighbours.Close()
		return err
	}
	n.node, n.lists, n.neighbours, n.router, n.filters = node, lists, neighbours, router, filters(programs)
	return nil
}

// stop closes the sockets. Nothing may be called any more.
func (n *nodeLinks) stop() error {
	n.node.Close()
	n.lists.Close()
	n.neighbours.Close()
	err := n.router.stop()
	n.node, n.lists, n.neighbours, n.router = nil, nil, nil, nil
	return err
}

func (n *nodeLinks) Link(index int) (netlink.Link, error) {
	if n.node == nil {
		return nil, ErrNotStarted
	}
	return linkOrErrNoLink(n.node.LinkByIndex(index))
}

func (n *nodeLinks) LinkByName(name string) (netlink.Link, error) {
	if n.node == nil {
		return nil, ErrNotStarted
	}
	return linkOrErrNoLink(n.node.LinkByName(name))
}

func linkOrErrNoLink(l netlink.Link, err error) (netlink.Link, error) {
	if _, notFound := errors.AsType[netlink.LinkNotFoundError](err); notFound {
		return nil, ErrNoLink
	}
	return l, err
}

func (n *nodeLinks) WaitForCarrier(ctx context.Context, host, container int, namespace *endpointmanager.Namespace) error {
	if n.node == nil {
		return ErrNotStarted
	}
	if err := link.WaitForCarrier(ctx, n.node, host); err != nil || namespace == nil {
		return err
	}
	return link.WaitForCarrier(ctx, namespace.Netlink(), container)
}

func (n *nodeLinks) BringDown(index int) error {
	if n.node == nil {
		return ErrNotStarted
	}
	return explain("take down link", index, n.node.LinkSetDown(nl.LinkAt(index)))
}

func (n *nodeLinks) BringUp(index int) error {
	if n.node == nil {
		return ErrNotStarted
	}
	return explain("bring up link", index, n.node.LinkSetUp(nl.LinkAt(index)))
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
