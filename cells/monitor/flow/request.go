package flow

import (
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/proxy/accesslog"
)

func requestToV1(f *v1.Flow, q *accesslog.Request) {
	f.Reason = q.Reason
	if h := q.HTTP; h != nil {
		f.HTTP = &v1.HTTPRequest{Method: h.Method, Host: h.Host, Path: h.Path, Status: h.Status}
	}
	if d := q.DNS; d != nil {
		f.DNS = &v1.DNSQuery{Name: d.Name, Type: queryType(d.Type), Code: replyCode(d.Code)}
	}
}

// queryType is the type's name, or "TYPE65280" (RFC 3597, section 5); "" for a query that cannot be read.
func queryType(t uint16) string {
	if t == 0 {
		return ""
	}
	if name, ok := strings.CutPrefix(dnsmessage.Type(t).String(), "Type"); ok {
		return strings.ToUpper(name)
	}
	return fmt.Sprintf("TYPE%d", t)
}

// replyCodes are RFC 6895, section 2.3.
var replyCodes = []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}

func replyCode(code int) string {
	switch {
	case code < 0:
		return ""
	case code < len(replyCodes):
		return replyCodes[code]
	}
	return fmt.Sprintf("RCODE%d", code)
}

// requestedName is the host of an HTTP request, or the name of a DNS query; "" for a packet.
func (r *record) requestedName() string {
	switch q := r.request; {
	case q == nil:
	case q.HTTP != nil:
		return q.HTTP.Host
	case q.DNS != nil:
		return q.DNS.Name
	}
	return ""
}

// isRequest reports whether it is a request of that protocol.
func (r *record) isRequest(protocol string) bool {
	return r.request != nil && (protocol == requestsHTTP && r.request.HTTP != nil || protocol == requestsDNS && r.request.DNS != nil)
}
