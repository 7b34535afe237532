package proxy

import (
	"context"
	"net"
	"net/netip"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/redirect"
)

// newDNS returns the handler of queries. The caller of each is its *connection.
func (b *BuiltIn) newDNS(learner policy.Learner, denied dnsproxy.Denied) (*dnsproxy.Handler, error) {
	return dnsproxy.New(dnsproxy.Config{
		Allows: func(q dnsproxy.Query, name string) bool { return q.Caller.(*connection).allowsName(name) },
		Open: func(q dnsproxy.Query, receive func([]byte)) (dnsproxy.Socket, error) {
			socket, err := b.udp.Open(dialClient(q), q.Server, receive)
			if err != nil {
				b.meters.dialFailed(err)
				return nil, err
			}
			return socket, nil
		},
		Dial: func(ctx context.Context, q dnsproxy.Query) (net.Conn, error) {
			return b.meters.dialed(b.redirect.Dial(ctx, dialClient(q), q.Server))
		},
		Learn: func(a dnsproxy.Answer) (func(context.Context) error, error) {
			return learner.Learn(a.Endpoint, a.Name, a.Addresses)
		},
		Record: b.recorder.query,
		Limits: dnsproxy.DefaultLimits(),
		Denied: denied,
	})
}

// dialClient is who the proxy's own connection for a query is for. The caller may have been of another port of the
// client's.
func dialClient(q dnsproxy.Query) redirect.Client {
	return redirect.Client{AddrPort: q.Client, IsLocal: q.Caller.(*connection).opener.Endpoint != 0}
}

// allowsName reports whether the rules of both ends let the name be asked for.
func (c *connection) allowsName(name string) bool {
	d, err := c.decide()
	if err != nil {
		return false
	}
	for _, set := range d.sets() {
		if set.dns == nil || !set.dns.Match(name) {
			return false
		}
	}
	return true
}

// query is one of a connection, without its message.
func (c *connection) query() dnsproxy.Query {
	return dnsproxy.Query{Endpoint: c.endpoint(), Client: c.source(), Server: c.server, Caller: c}
}

// decidedQueries has what was decided about queries with the same ends, which come from another port each time. The
// thread that reads datagrams uses it alone.
type decidedQueries map[queryEnds]*connection

// queryEnds is what a decision depends on, beside the policies.
type queryEnds struct {
	opener   Opener
	server   netip.AddrPort
	receiver uint16
}

// maxDecided bounds what is remembered.
const maxDecided = 4096

// of returns a connection that is decided about as c is. [connection.decide] finds out whether that still holds.
func (d decidedQueries) of(c *connection) *connection {
	ends := queryEnds{c.opener, c.server, c.receiver}
	if known := d[ends]; known != nil && !known.isOver() {
		return known
	}
	if len(d) >= maxDecided {
		clear(d)
	}
	d[ends] = c
	return c
}

// serveDatagram answers a query. It does not block.
func (b *BuiltIn) serveDatagram(ctx context.Context, l *redirect.Listeners, d redirect.Datagram) {
	c, err := identify(b.kernel, &b.rules, model.UDP, d.Client, d.Server)
	if err != nil {
		b.log.Debug("datagram dropped", "source", d.Client, "destination", d.Server, "error", err)
		return
	}
	q := c.query()
	q.Message, q.Caller = d.Message, b.decided.of(c)
	b.dns.HandleQuery(ctx, q, func(answer []byte) {
		if answer == nil {
			return
		}
		if err := l.Reply(d.Server, d.Client, answer); err != nil {
			b.log.Debug("query not answered", "source", d.Client, "destination", d.Server, "error", err)
		}
	})
}
