package established

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/conntrack"
	"porin.dev/porin/internal/netns"
)

// timeout is for all pods of one change, once before it and once after: others wait meanwhile.
const timeout = time.Second

// closing is the [policy.Closing].
type closing struct {
	destroyer  *Destroyer
	locals     []policy.Local
	namespaces map[uint64]*os.File // by cookie: those that a process is in; empty when nothing can be closed
	tracking   *conntrack.Socket   // nil: then nothing is translated
	proxy      *proxySockets
	seen       map[socketID]bool // by earlier calls of Close
}

func (c *closing) open() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cookies := map[uint64]bool{}
	for _, l := range c.locals {
		cookies[l.NetNSCookie] = true
	}
	if c.proxy, err = openProxySockets(); err != nil {
		return err
	}
	if c.tracking, err = conntrack.Open(0); err != nil {
		c.tracking = nil
	}
	c.namespaces, err = netns.Find(ctx, cookies)
	return err
}

// End implements [policy.Closing].
func (c *closing) End() {
	netns.CloseAll(c.namespaces)
	c.namespaces = nil
	if c.tracking != nil {
		c.tracking.Close()
	}
	if c.proxy != nil {
		c.proxy.close()
	}
	c.tracking, c.proxy = nil, nil
}

// Close implements [policy.Closing].
func (c *closing) Close(effectOf policy.Layer7Effect) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if len(c.namespaces) == 0 {
		return
	}
	log := c.destroyer.log
	for i, l := range c.locals {
		ctx, cancel := context.WithTimeout(ctx, c.share(ctx, i))
		defer cancel()
		file := c.namespaces[l.NetNSCookie]
		if file == nil {
			log.Debug("no process is seen in a pod's network namespace: its open connections are not closed", "endpoint", l.ID)
			continue
		}
		n, err := 0, ctx.Err()
		if err == nil {
			n, err = closeIn(ctx, int(file.Fd()), func(s socket, accepts bool) bool { return c.isNew(s) && c.isAffected(l, s, accepts, effectOf) })
		}
		if errors.Is(err, errUnsupported) {
			c.destroyer.noteUnsupported(err)
			return
		}
		if err != nil {
			log.Warn("not all open connections that get layer 7 rules are closed", "endpoint", l.ID, "error", err)
		}
		if n > 0 {
			log.Info("connections closed that layer 7 rules are for from now on", "endpoint", l.ID, "connections", n)
		}
	}
}

// share is the time that the pod with the index may take, so that the others have theirs, whatever sockets it has.
func (c *closing) share(ctx context.Context, index int) time.Duration {
	end, _ := ctx.Deadline()
	return time.Until(end) / time.Duration(len(c.locals)-index)
}

// isNew reports whether no earlier call has seen the socket.
func (c *closing) isNew(s socket) bool {
	if c.seen[s.id] {
		return false
	}
	c.seen[s.id] = true
	return true
}

func (c *closing) isAffected(l policy.Local, s socket, accepts bool, effectOf policy.Layer7Effect) bool {
	e, known := ends(c.tracking, s, accepts)
	effect := effectOf(e.from.Addr(), e.to.Addr(), e.to.Port())
	if !known && !accepts && effect == policy.EffectNone {
		e = accepted(s) // by a server that has closed its listening socket
		effect = effectOf(e.from.Addr(), e.to.Addr(), e.to.Port())
	}
	if effect != policy.EffectGainsRulesAtNode && (effect != policy.EffectGainsRules || c.destroyer.cfg.OpenConnections != Close) {
		return false
	}
	proxied, err := c.proxy.has(e.proxyLocal, e.proxyRemote)
	if err != nil {
		c.destroyer.log.Debug("whether a connection goes through the proxy is not known: it is closed", "endpoint", l.ID, "error", err)
	}
	return !proxied
}

// closeIn closes sockets of a network namespace until ctx ends, and returns how many. One that waits for the server's first segment is none of them: with its next try
// it gets to the proxy, if the rules are in force by then.
func closeIn(ctx context.Context, namespace int, isAffected func(s socket, accepts bool) bool) (n int, err error) {
	err = netns.In(namespace, func() error {
		all, err := list()
		if err != nil {
			return err
		}
		ports := listening(all)
		for _, s := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, accepts := slices.BinarySearch(ports, s.local.Port())
			if s.state == listens || s.state == synSent || s.local.Addr().IsLoopback() || !isAffected(s, accepts) {
				continue
			}
			if err := s.destroy(); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

// connection is who has opened a connection, and to whom, after the node's translation; and the ends of the proxy's socket, if it goes through the proxy.
type connection struct{ from, to, proxyLocal, proxyRemote netip.AddrPort }

// accepted has the ends of a pod's socket that is not translated, and not the one who has opened the connection.
func accepted(s socket) connection { return connection{s.remote, s.local, s.remote, s.local} }

// ends returns those of a pod's socket, and whether it is known who has opened the connection. What connection tracking does not know is not translated; then a pod that
// listens at the port has accepted it.
func ends(tracking *conntrack.Socket, s socket, accepts bool) (e connection, known bool) {
	if tracking != nil {
		c, found, err := tracking.Get(unix.IPPROTO_TCP, conntrack.Tuple{Source: s.local, Destination: s.remote}, false)
		switch {
		case err != nil || !found:
		case c.Original.Source == s.local: // the proxy has accepted it
			return connection{c.Original.Source, c.Reply.Source, c.Reply.Source, c.Reply.Destination}, true
		default: // the proxy has opened it
			return connection{c.Original.Source, c.Reply.Source, c.Original.Source, c.Original.Destination}, true
		}
	}
	if accepts {
		return accepted(s), false
	}
	return connection{s.local, s.remote, s.remote, s.local}, false
}
