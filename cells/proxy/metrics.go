package proxy

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/redirect"
)

// meters count what becomes of connections and requests: a collector of their counters.
type meters struct {
	*metrics.Values
	accepted                        atomic.Uint64 // connections
	refused, requests, dialFailures *prometheus.CounterVec
}

func newMeters() *meters {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "porin_proxy_" + name, Help: help}, labels)
	}
	m := &meters{
		refused: vec("connections_refused_total", "Connections that the proxy has accepted and reset at once.", "reason"),
		requests: vec("requests_total",
			"Requests through the proxy, and connections that ended before one, by result. The reason is empty for forwarded requests.",
			"protocol", "verdict", "reason"),
		dialFailures: vec("dials_failed_total", "Connections to servers that the proxy could not open.", "reason"),
	}
	m.Values = metrics.NewValues("", m.refused, m.requests, m.dialFailures)
	return m
}

// refuse counts why a connection was reset.
func (m *meters) refuse(err error) {
	reason := "error"
	switch {
	case errors.Is(err, errDenied):
		reason = "policy"
	case errors.Is(err, ErrNoOpener):
		reason = "unknown-client"
	case errors.Is(err, errTooMany):
		reason = "too-many"
	case errors.Is(err, errStopped):
		reason = "stopping"
	}
	m.refused.WithLabelValues(reason).Inc()
}

// request is an [httpproxy.Session.Record].
func (m *meters) request(r httpproxy.Record) {
	m.requests.WithLabelValues("http", string(r.Verdict), string(r.Reason)).Inc()
}

// dialed counts a failure, and returns what it was given.
func (m *meters) dialed(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		m.dialFailed(err)
	}
	return conn, err
}

// dialFailed counts why a server could not be reached.
func (m *meters) dialFailed(err error) {
	var timeout net.Error
	reason := "other"
	switch {
	case errors.Is(err, redirect.ErrNoPort):
		reason = "no-port"
	case errors.Is(err, context.Canceled):
		reason = "canceled"
	case errors.Is(err, unix.ECONNREFUSED):
		reason = "refused"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		reason = "unreachable"
	case errors.As(err, &timeout) && timeout.Timeout():
		reason = "timeout"
	}
	m.dialFailures.WithLabelValues(reason).Inc()
}

// newCollector shows how the proxy is, whatever its listener.
func newCollector(p *Proxy) *metrics.Values {
	v := metrics.NewValues("porin_proxy_")
	sets := v.Gauge("rule_sets", "Sets of layer 7 rules that the proxy has.")
	connections := v.Gauge("connections", "Connections that go through the proxy.")
	accepted := v.Counter("connections_accepted_total", "Connections that the proxy has accepted.")
	v.Read = func(ch chan<- prometheus.Metric) {
		status := p.Status()
		_, n := p.listener.Connections()
		sets.Send(ch, float64(status.RuleSets))
		connections.Send(ch, float64(status.Connections))
		accepted.Send(ch, float64(n))
	}
	return v
}
