package datapath

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

// nodeLinks is [Links] in the network namespace of the thread that started it.
type nodeLinks struct {
	log     *slog.Logger
	conn    *rtnl.Conn // nil unless started
	deleter *deleter
	filters [2]rtnl.Filter // less their Link
}

// start opens the sockets. The programs must stay open until stop.
func (n *nodeLinks) start(programs *pinnedPrograms) error {
	conn, err := rtnl.Dial()
	if err != nil {
		return err
	}
	deleter, err := openDeleter(conn, n.log)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	n.conn, n.deleter, n.filters = conn, deleter, filters(programs)
	return nil
}

// stop waits for the deletions in progress. Nothing may be called any more.
func (n *nodeLinks) stop() error {
	err := errors.Join(n.deleter.close(), n.conn.Close())
	n.conn = nil
	return err
}

func (n *nodeLinks) do(requests ...rtnl.Request) error {
	if n.conn == nil {
		return ErrNotStarted
	}
	return n.conn.Do(requests...)
}

func (n *nodeLinks) Link(index int) (Link, error) {
	var link rtnl.Link
	return describe(&link, n.do(rtnl.LinkByIndex(index, &link)))
}

func (n *nodeLinks) Remove(ctx context.Context, index int) error {
	if n.conn == nil {
		return ErrNotStarted
	}
	return n.deleter.remove(ctx, index)
}

func (n *nodeLinks) LinkByName(name string) (Link, error) {
	var link rtnl.Link
	return describe(&link, n.do(rtnl.LinkByName(name, &link)))
}

func describe(link *rtnl.Link, err error) (Link, error) {
	if errors.Is(err, unix.ENODEV) {
		return Link{}, ErrNoLink
	}
	if err != nil {
		return Link{}, err
	}
	return Link{
		Index: link.Index, Name: link.Name, Kind: link.Kind, MAC: endpointmanager.MAC(link.MAC), Up: link.Up(),
	}, nil
}

func (n *nodeLinks) Links() ([]Link, error) {
	if n.conn == nil {
		return nil, ErrNotStarted
	}
	return hostEnds(n.conn)
}

// hostEnds lists the links that bear our mark.
func hostEnds(conn *rtnl.Conn) ([]Link, error) {
	all, err := conn.Links()
	if err != nil {
		return nil, err
	}
	var ours []Link
	for _, l := range all {
		if link, _ := describe(&l, nil); link.Marked() {
			ours = append(ours, link)
		}
	}
	return ours, nil
}

func (n *nodeLinks) PruneRoutes(live []Entry) (removed int, err error) {
	if n.conn == nil {
		return 0, ErrNotStarted
	}
	keep, want := map[int]bool{}, map[rtnl.Route]bool{}
	for _, e := range live {
		keep[e.Link] = true
		for _, addr := range e.Addresses.List() {
			want[rtnl.Route{Dst: hostPrefix(addr), Link: e.Link}] = true
		}
	}
	all, err := n.conn.Routes(0)
	if err != nil {
		return 0, err
	}
	var requests []rtnl.Request
	for _, r := range all {
		if r.Protocol == rtnl.Protocol && keep[r.Link] && !want[rtnl.Route{Dst: r.Dst, Link: r.Link}] {
			requests = append(requests, rtnl.DelRoute(r))
		}
	}
	return len(requests), n.do(requests...)
}
