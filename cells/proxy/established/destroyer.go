package established

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/conntrack"
	"porin.dev/porin/internal/netns"
)

// timeout is for all pods of one change: others wait meanwhile.
const timeout = 250 * time.Millisecond

// Destroyer is the [policy.ConnectionCloser].
type Destroyer struct {
	cfg         Config
	log         *slog.Logger
	unsupported atomic.Pointer[error] // why nothing can be closed; it is in the log
}

// New returns what closes connections, or only those that cannot go on, as the configuration says.
func New(cfg Config, log *slog.Logger) *Destroyer { return &Destroyer{cfg: cfg, log: log} }

// start asks the kernel whether it can close connections, so that the status says so before rules come.
func (d *Destroyer) start() { d.noteUnsupported(probe()) }

func (d *Destroyer) noteUnsupported(err error) {
	if err != nil && d.unsupported.CompareAndSwap(nil, &err) {
		d.log.Warn("open connections that get layer 7 rules cannot be closed, and are reset with their next packet", "error", err)
	}
}

// Report implements server.StatusReporter.
func (d *Destroyer) Report(status *v1.Status) {
	if err := d.unsupported.Load(); err != nil {
		status.Proxy.OpenConnections = (*err).Error()
	}
}

// Close implements [policy.ConnectionCloser]. What goes through the proxy is left to it, which decides by the rules from the next request on.
func (d *Destroyer) Close(locals []policy.Local, effectOf policy.Layer7Effect) {
	if d.unsupported.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cookies := map[uint64]bool{}
	for _, l := range locals {
		cookies[l.NetNSCookie] = true
	}
	namespaces, err := netns.Find(ctx, cookies)
	if err != nil {
		d.log.Warn("open connections that get layer 7 rules are not closed, but reset with their next packet", "error", err)
		return
	}
	defer netns.CloseAll(namespaces)
	tracking, err := conntrack.Open(0)
	if err == nil {
		defer tracking.Close()
	} else {
		tracking = nil // then nothing is translated
	}
	proxy, err := openProxySockets()
	if err != nil {
		d.log.Warn("open connections that get layer 7 rules are not closed, but reset with their next packet", "error", err)
		return
	}
	defer proxy.close()
	for _, l := range locals {
		file := namespaces[l.NetNSCookie]
		if file == nil {
			d.log.Debug("no process is seen in a pod's network namespace: its open connections are not closed", "endpoint", l.ID)
			continue
		}
		n, err := 0, ctx.Err()
		if err == nil {
			n, err = closeIn(int(file.Fd()), func(s socket, accepts bool) bool {
				e := ends(tracking, s, accepts)
				effect := effectOf(e.from.Addr(), e.to.Addr(), e.to.Port())
				if effect != policy.EffectGainsRulesAtNode && (effect != policy.EffectGainsRules || d.cfg.OpenConnections != Close) {
					return false
				}
				proxied, err := proxy.has(e.proxyLocal, e.proxyRemote)
				if err != nil {
					d.log.Debug("whether a connection goes through the proxy is not known: it is closed", "endpoint", l.ID, "error", err)
				}
				return !proxied
			})
		}
		if errors.Is(err, errUnsupported) {
			d.noteUnsupported(err)
			return
		}
		if err != nil {
			d.log.Warn("not all open connections that get layer 7 rules are closed", "endpoint", l.ID, "error", err)
		}
		if n > 0 {
			d.log.Info("connections closed that layer 7 rules are for from now on", "endpoint", l.ID, "connections", n)
		}
	}
}

// closeIn closes sockets of a network namespace, and returns how many.
func closeIn(namespace int, isAffected func(s socket, accepts bool) bool) (n int, err error) {
	err = netns.In(namespace, func() error {
		all, err := list()
		if err != nil {
			return err
		}
		ports := listening(all)
		for _, s := range all {
			_, accepts := slices.BinarySearch(ports, s.local.Port())
			if s.state == listens || s.local.Addr().IsLoopback() || !isAffected(s, accepts) {
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

// ends returns those of a pod's socket. What connection tracking does not know is not translated; then a pod that listens at the port has accepted it.
func ends(tracking *conntrack.Socket, s socket, accepts bool) connection {
	if tracking != nil {
		c, found, err := tracking.Get(unix.IPPROTO_TCP, conntrack.Tuple{Source: s.local, Destination: s.remote}, false)
		switch {
		case err != nil || !found:
		case c.Original.Source == s.local: // the proxy has accepted it
			return connection{c.Original.Source, c.Reply.Source, c.Reply.Source, c.Reply.Destination}
		default: // the proxy has opened it
			return connection{c.Original.Source, c.Reply.Source, c.Original.Source, c.Original.Destination}
		}
	}
	if accepts {
		return connection{s.remote, s.local, s.remote, s.local}
	}
	return connection{s.local, s.remote, s.remote, s.local}
}
