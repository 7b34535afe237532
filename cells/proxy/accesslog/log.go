// Package accesslog keeps what clients have asked for through the proxy, each HTTP request and each DNS query, until
// the agent shows them with its flows.
//
//	httpproxy, http2proxy, dnsproxy --> [Log.Add] --> [Log.Read] --> flow.Collector, every 100 ms
//	                                       |                            ^
//	                                       '-- porin-proxy: control --> [Log.Append]
//
// Add never waits. A flood of requests costs no more than [PerSecond] of them: those above are counted as lost.
package accesslog

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/quota"
)

// Request is an HTTP request, or a DNS query. It does not change.
type Request struct {
	Time     time.Time      `json:"time"` // when its answer was known
	Protocol model.Protocol `json:"protocol"`
	Client   netip.AddrPort `json:"client"` // before the node has translated it
	Server   netip.AddrPort `json:"server"`
	// Endpoint is the client, if it is an endpoint of this node, or else the server.
	Endpoint uint16  `json:"endpoint,omitempty"`
	HTTP     *HTTP   `json:"http,omitempty"` // nil for a DNS query
	DNS      *DNS    `json:"dns,omitempty"`  // nil for an HTTP request
	Verdict  Verdict `json:"verdict"`
	Reason   string  `json:"reason,omitempty"` // of the package of the protocol; "" when the client has the server's answer
}

// HTTP is what is kept of an HTTP request. Headers, bodies and the query behind the path may have secrets, and are not.
type HTTP struct {
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"`   // without the query
	Status int    `json:"status,omitempty"` // that the client has got; 0: none
}

// DNS is what is kept of a DNS query.
type DNS struct {
	Name string `json:"name,omitempty"` // "" if it cannot be read
	Type uint16 `json:"type,omitempty"` // RFC 1035, section 3.2.2
	Code int    `json:"code"`           // of the reply, RFC 1035, section 4.1.1; -1: there was none
}

// Verdict is what became of a request.
type Verdict string

// The verdicts there are.
const (
	Allowed Verdict = "allowed" // it was forwarded; with a reason, no whole answer came
	Denied  Verdict = "denied"  // by the rules
	Refused Verdict = "refused" // it is no request that the proxy reads, or there were too many
)

// The bounds of what is kept.
const (
	// PerSecond is how many allowed requests of a second are kept, and as many others; half of them are for endpoints that
	// have few ([quota.Quota]).
	PerSecond = 2048
	// PerEndpoint is how many of them may be of one endpoint.
	PerEndpoint = 512

	maxUnread = 2 * PerSecond
	maxText   = 256 // letters of a host or path
	maxMethod = 32
)

// Log keeps requests until they are read: of more than it has room for, the first ones.
type Log struct {
	mu     sync.Mutex // guards the fields below
	unread []Request
	lost   uint64 // since the last Read

	began           bool        // the quotas are there
	second          int64       // of the quotas
	allowed, others quota.Quota // of allowed requests, and of others
}

// Add keeps a request. It may be called concurrently.
func (l *Log) Add(r Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := r.Time.Unix(); !l.began || now > l.second || now < l.second-1 { // the clock may be set back
		l.began, l.second, l.allowed, l.others = true, now, quota.New(PerEndpoint, PerSecond), quota.New(PerEndpoint, PerSecond)
	}
	left := &l.allowed
	if r.Verdict != Allowed {
		left = &l.others
	}
	if len(l.unread) >= maxUnread || left.Acquire(r.Endpoint, 1) != quota.Acquired {
		l.lost++
		return
	}
	l.unread = append(l.unread, r)
}

// NewHTTP returns what is kept of an HTTP request. The texts are the client's, and may be long.
func NewHTTP(method, host, path string, status int) *HTTP {
	path, _, _ = strings.Cut(path, "?")
	return &HTTP{Method: clip(method, maxMethod), Host: clip(host, maxText), Path: clip(path, maxText), Status: status}
}

// NewDNS returns what is kept of a DNS query.
func NewDNS(name string, kind uint16, code int) *DNS { return &DNS{clip(name, maxText), kind, code} }

// clip copies, so that the rest of a long request is not kept with it.
func clip(text string, most int) string {
	if len(text) <= most {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// clipped bounds the texts of a request.
func (r Request) clipped() Request {
	if r.HTTP != nil {
		r.HTTP = NewHTTP(r.HTTP.Method, r.HTTP.Host, r.HTTP.Path, r.HTTP.Status)
	}
	if r.DNS != nil {
		r.DNS = NewDNS(r.DNS.Name, r.DNS.Type, r.DNS.Code)
	}
	return r
}

// Append keeps requests of another process that has read them, as far as there is room.
func (l *Log) Append(requests []Request, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := min(len(requests), max(0, maxUnread-len(l.unread)))
	for _, r := range requests[:kept] {
		l.unread = append(l.unread, r.clipped())
	}
	l.lost += lost + uint64(len(requests)-kept)
}

// Read returns the requests since the last call, oldest first, and how many were lost since then.
func (l *Log) Read() (requests []Request, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	requests, lost = l.unread, l.lost
	l.unread, l.lost = nil, 0
	return requests, lost
}
