package redirect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// repairInterval is how often everything is compared: the kernel does not notify of sysctls, sockets and links of
// programs.
const repairInterval = 10 * time.Second

// errLost is returned when the kernel has dropped notifications.
var errLost = errors.New("the kernel has dropped notifications of devices, routes or nftables")

// Follow repairs what others remove or change, until the way into the proxy is closed, ctx ends, or it fails. It
// returns nil when the way is closed.
func (r *Redirect) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	tables, routes, closed, err := r.watch(ctx)
	defer func() {
		cancel()
		drain(tables)
		drain(routes)
	}()
	if err != nil || closed == nil {
		return err
	}
	tick := time.NewTicker(repairInterval)
	defer tick.Stop()
	for {
		if err := r.Repair(); err != nil { // after the watch began, so that nothing is missed
			return err
		}
		for damaged := false; !damaged; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-closed:
				return nil
			case <-tick.C:
				damaged = true
			case _, open := <-tables:
				if !open {
					return cmp.Or(ctx.Err(), errLost)
				}
				damaged = true
			case m, open := <-routes:
				if !open {
					return cmp.Or(ctx.Err(), errLost)
				}
				damaged = mayDamage(m)
			}
		}
	}
}

// drain reads to the end. A nil channel has none.
func drain[T any](notifications <-chan T) {
	if notifications == nil {
		return
	}
	for range notifications {
	}
}

// watch asks for notifications. closed is nil when the way is not open.
func (r *Redirect) watch(ctx context.Context) (tables <-chan struct{}, routes <-chan syscall.NetlinkMessage, closed chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil {
		return nil, nil, nil, nil
	}
	err = r.namespace.Load().do(func() error {
		routes, err = nl.Watch(ctx, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("watch devices and routes: %w", err)
	}
	if tables, err = r.divert.owner.Watch(ctx); err != nil {
		return nil, routes, nil, err
	}
	return tables, routes, r.closed, nil
}

// mayDamage leaves out most of what others do: other devices come and go, with their addresses and routes.
func mayDamage(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		header := unix.NlMsghdr(m.Header)
		l, err := netlink.LinkDeserialize(&header, m.Data)
		return err != nil || link.IsProxyDevice(l.Attrs().Name)
	case unix.RTM_DELRULE, unix.RTM_DELADDR:
		return true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(m.Data) >= unix.SizeofRtMsg && m.Data[4] == unix.RT_TABLE_COMPAT // tables with numbers above 255
	}
	return false
}
