package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/redirect"
)

// newDNS returns the handler of queries. The caller of each is its *connection.
func (b *BuiltIn) newDNS(learner policy.Learner) (*dnsproxy.Handler, error) {
	return dnsproxy.New(dnsproxy.Config{
		Allows: func(q dnsproxy.Query, name string) bool { return q.Caller.(*connection).allowsName(name) },
		Open: func(q dnsproxy.Query, receive func([]byte, error)) (dnsproxy.Socket, error) {
			socket, err := b.udp.Open(q.Client, q.Server, receive)
			if err != nil {
				b.meters.dialFailed(err)
				return nil, err
			}
			return socket, nil
		},
		Dial: func(ctx context.Context, q dnsproxy.Query) (net.Conn, error) {
			return b.meters.dialed(b.redirect.Dial(ctx, q.Client, q.Server))
		},
		Learn: func(a dnsproxy.Answer) (func(context.Context) error, error) {
			return learner.Learn(a.Endpoint, a.Name, a.Addresses)
		},
		Record: b.recordQuery,
		Limits: dnsproxy.DefaultLimits(),
	})
}

func (b *BuiltIn) recordQuery(r dnsproxy.Record) {
	b.meters.query(r)
	b.log.Debug("query answered", "endpoint", r.Endpoint, "source", r.Client, "destination", r.Server, "name", r.Name, "type", r.Type, "reason", r.Outcome, "duration", r.Duration)
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

// serveDatagrams answers queries until the socket is closed.
func (b *BuiltIn) serveDatagrams(ctx context.Context, l *redirect.Listeners, socket *net.UDPConn) {
	message, control := make([]byte, 65535), make([]byte, redirect.DestinationSize)
	for {
		n, controls, _, from, err := socket.ReadMsgUDPAddrPort(message, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one datagram, such as an ICMP error about a reply
		}
		server, err := redirect.Destination(control[:controls])
		if err != nil {
			b.log.Debug("datagram dropped", "source", from, "error", err)
			continue
		}
		b.serveDatagram(ctx, l, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), server, message[:n])
	}
}

func (b *BuiltIn) serveDatagram(ctx context.Context, l *redirect.Listeners, client, server netip.AddrPort, message []byte) {
	c, err := identify(b.kernel, &b.rules, model.UDP, client, server)
	if err != nil {
		b.log.Debug("datagram dropped", "source", client, "destination", server, "error", err)
		return
	}
	q := c.query()
	q.Message = message
	reply := l.Reply
	if c.opener.ToNode {
		reply = l.ReplyAsNode
	}
	b.dns.Go(ctx, q, func(answer []byte) {
		if answer == nil {
			return
		}
		if err := reply(server, client, answer); err != nil {
			b.log.Debug("query not answered", "source", client, "destination", server, "error", err)
		}
	})
}
