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
	eyes    *rtnl.Conn // for long looks, so that nobody else waits for them
	deleter *deleter
	filters [2]rtnl.Filter // less their Link
}

// start opens the sockets. The programs must stay open until stop.
func (n *nodeLinks) start(programs *pinnedPrograms) error {
	conn, err := rtnl.Dial()
	if err != nil {
		return err
	}
	eyes, err := rtnl.Dial()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	deleter, err := openDeleter(conn, n.log)
	if err != nil {
		return errors.Join(err, conn.Close(), eyes.Close())
	}
	n.conn, n.eyes, n.deleter, n.filters = conn, eyes, deleter, filters(programs)
	return nil
}

// stop waits for the deletions in progress. Nothing may be called any more.
func (n *nodeLinks) stop() error {
	err := errors.Join(n.deleter.close(), n.conn.Close(), n.eyes.Close())
	n.conn, n.eyes = nil, nil
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

func (n *nodeLinks) BringUp(index int) error { return explain(n.do(rtnl.LinkUp(index))) }
