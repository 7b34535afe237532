package established

import (
	"context"
	"errors"
	"os"
	"time"

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
	var left []policy.Local
	for _, l := range c.locals {
		if c.namespaces[l.NetNSCookie] == nil {
			c.destroyer.log.Debug("no process is seen in a pod's network namespace: its open connections are not closed", "endpoint", l.ID)
		} else {
			left = append(left, l)
		}
	}
	for len(left) > 0 { // a pod that has used up its share goes on when the others have had theirs
		var unfinished []policy.Local
		for i, l := range left {
			err := c.closePod(ctx, share(ctx, len(left)-i), l, effectOf)
			switch {
			case errors.Is(err, errUnsupported):
				c.destroyer.noteUnsupported(err)
				return
			case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
				unfinished = append(unfinished, l)
			case err != nil:
				c.destroyer.log.Warn("not all open connections that get layer 7 rules are closed", "endpoint", l.ID, "error", err)
			}
		}
		left = unfinished
	}
}

// closePod closes those of one pod, within the time. After [context.DeadlineExceeded], another call goes on.
func (c *closing) closePod(ctx context.Context, within time.Duration, l policy.Local, effectOf policy.Layer7Effect) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := closeIn(ctx, int(c.namespaces[l.NetNSCookie].Fd()), func(s socket, by origin) bool { return c.isNew(s) && c.isAffected(l, s, by, effectOf) })
	if n > 0 {
		c.destroyer.log.Info("connections closed that layer 7 rules are for from now on", "endpoint", l.ID, "connections", n)
	}
	return err
}

// leastShare is enough to list the sockets of most pods, and to look at some.
const leastShare = 20 * time.Millisecond

// share is the time that one of n pods may take, so that the others have theirs, whatever sockets it has.
func share(ctx context.Context, n int) time.Duration {
	end, _ := ctx.Deadline()
	return max(time.Until(end)/time.Duration(n), leastShare)
}

// isNew reports whether no earlier call has seen the socket.
func (c *closing) isNew(s socket) bool {
	if c.seen[s.id] {
		return false
	}
	c.seen[s.id] = true
	return true
}

func (c *closing) isAffected(l policy.Local, s socket, by origin, effectOf policy.Layer7Effect) bool {
	var e connection
	effect := policy.EffectNone
	for _, e = range possibleEnds(c.tracking, s, by) {
		if effect = effectOf(e.from.Addr(), e.to.Addr(), e.to.Port()); effect != policy.EffectNone {
			break
		}
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

// closeIn closes the affected sockets of a network namespace until ctx ends, and returns how many. isAffected is not asked about one that waits for the server's SYN-ACK:
// with its next try it gets to the proxy, and if it is established before the rules are in force, the next call closes it.
func closeIn(ctx context.Context, namespace int, isAffected func(s socket, by origin) bool) (n int, err error) {
	err = netns.In(namespace, func() error {
		all, err := list()
		if err != nil {
			return err
		}
		ports, ephemeral := listening(all), ephemeralPorts()
		for _, s := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			by := originOf(s, ports, ephemeral)
			if s.state == listens || s.state == synSent || s.local.Addr().IsLoopback() || !isAffected(s, by) {
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
