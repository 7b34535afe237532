package redirect

import (
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

// Follow repairs what other programs remove or change, by the rules of package reconcile, until ctx ends or the way
// into the proxy is closed: then it returns nil.
func (r *Redirect) Follow(ctx context.Context) error {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed == nil {
		return nil
	}
	followCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-closed:
			cancel()
		case <-followCtx.Done():
		}
	}()
	_ = r.follower.Run(followCtx) // which ends with it
	return ctx.Err()
}

// source is the reconcile.Source of the way into the proxy, which is one owner.
type source struct{ *Redirect }

const owner = "the way into the proxy"

var errClosed = errors.New("the way into the proxy is closed")

// Watch implements reconcile.Source.
func (r source) Watch(ctx context.Context) (<-chan string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	var routes <-chan syscall.NetlinkMessage
	err := r.namespace.Load().do(func() (err error) {
		routes, err = nl.Watch(ctx, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch devices and routes: %w", err)
	}
	tables, err := r.divert.Watch(ctx)
	if err != nil {
		cancel()
		drain(routes)
		return nil, err
	}
	changes := make(chan string)
	go func() {
		defer close(changes)
		tick := time.NewTicker(repairInterval)
		defer tick.Stop()
		for open := true; open; {
			damaged := true
			select {
			case <-tick.C:
			case _, open = <-tables:
			case m, ok := <-routes:
				open, damaged = ok, ok && mayDamage(m)
			}
			if open && damaged {
				changes <- owner
			}
		}
		cancel()
		drain(routes)
		drain(tables)
	}()
	return changes, nil
}

// Owners implements reconcile.Source.
func (source) Owners() []string { return []string{owner} }

// Differs implements reconcile.Source. When something cannot be read, Repair tries to make it.
func (r source) Differs(string) (bool, error) {
	differences, err := r.Compare()
	return len(differences) > 0 || err != nil, nil
}

// Repair implements reconcile.Source.
func (r source) Repair(context.Context, string) error { return r.Redirect.Repair() }

// drain reads to the end.
func drain[T any](notifications <-chan T) {
	for range notifications {
	}
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
