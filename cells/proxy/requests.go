package proxy

import (
	"time"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// verdictOf is what is told of requests, by what the metrics count.
var verdictOf = map[httpproxy.Verdict]accesslog.Verdict{
	httpproxy.Forwarded: accesslog.Allowed, httpproxy.Failed: accesslog.Allowed, httpproxy.Denied: accesslog.Denied, httpproxy.Refused: accesslog.Refused,
}

// recorder counts requests, and tells of them.
type recorder struct {
	meters   *meters
	requests accesslog.Log
}

// request counts and tells of an HTTP request of a connection, or that the connection ended before one.
func (x *recorder) request(c *connection, r httpproxy.Record) {
	x.meters.request(r)
	x.requests.Add(accesslog.Request{
		Time: time.Now(), Protocol: c.protocol, Client: c.source(), Server: c.server, Endpoint: c.endpoint(),
		HTTP: accesslog.NewHTTP(r.Method, r.Host, r.Path, r.Status), Verdict: verdictOf[r.Verdict], Reason: string(r.Reason),
	})
}

// query counts and tells of a DNS query.
func (x *recorder) query(r dnsproxy.Record) {
	verdict := verdictOfQuery(r.Outcome)
	told := accesslog.Request{
		Time: time.Now(), Protocol: model.UDP, Client: r.Client, Server: r.Server, Endpoint: r.Endpoint,
		DNS: accesslog.NewDNS(r.Name, r.Type, r.Code), Verdict: verdictOf[verdict],
	}
	if r.TCP {
		told.Protocol = model.TCP
	}
	if r.Outcome != dnsproxy.Answered {
		told.Reason = string(r.Outcome)
	}
	x.meters.requests.WithLabelValues("dns", string(verdict), told.Reason).Inc()
	x.requests.Add(told)
}

func verdictOfQuery(o dnsproxy.Outcome) httpproxy.Verdict {
	switch o {
	case dnsproxy.Answered:
		return httpproxy.Forwarded
	case dnsproxy.Policy, dnsproxy.Kind, dnsproxy.Ambiguous:
		return httpproxy.Denied
	case dnsproxy.Malformed, dnsproxy.Unsupported, dnsproxy.Response, dnsproxy.EndpointLimit, dnsproxy.TotalLimit, dnsproxy.Connections:
		return httpproxy.Refused
	}
	return httpproxy.Failed
}
