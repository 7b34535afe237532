package httpproxy

import (
	"bytes"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// Request is the head of one request, as far as it is forwarded. It is valid only during the call that it is given to.
type Request struct {
	Method string
	Path   string // with the query, as in the request's target
	Host   string // in lower case, without port

	headers []Header // of a request of HTTP/2; the fields below are of HTTP/1

	head    []byte
	line    int // length of the request line with its end
	fields  []field
	framing framing
	options options
	http10  bool
	expect  bool   // 100-continue
	offer   []byte // the protocols of Upgrade, if one is asked for that may be
}

var requests = sync.Pool{New: func() any { return &Request{fields: make([]field, 0, 32)} }}

// release gives r back. Its strings stay valid.
func (r *Request) release() {
	*r = Request{fields: r.fields[:0]}
	requests.Put(r)
}

// knownHost remembers the last Host, which seldom changes on a connection.
type knownHost struct{ raw, host string }

// parse reads a whole head, which r refers to until it is released. If it returns a reason, r has the parts before the
// fault.
func (r *Request) parse(head []byte, limit int, last *knownHost) (reason Reason) {
	r.head = head
	line, ok := firstLine(head)
	if !ok {
		return ReasonRequestLine
	}
	r.line = len(line) + 2
	target, reason := r.parseLine(line)
	if reason != "" {
		return reason
	}
	if r.fields, reason = parseFields(head, r.line, r.fields, limit); reason != "" {
		return reason
	}
	authority, reason := r.parseTarget(target)
	if reason != "" {
		return reason
	}
	if reason = r.parseHost(authority, last); reason != "" {
		return reason
	}
	if r.framing, reason = readFraming(head, r.fields, r.http10); reason != "" {
		return reason
	}
	if reason = r.parseExpect(); reason != "" {
		return reason
	}
	if r.options, ok = readOptions(head, r.fields); !ok {
		return ReasonHeader
	}
	r.parseUpgrade()
	return ""
}

func (r *Request) parseLine(line []byte) (target []byte, reason Reason) {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(method) == 0 || !all(method, inToken) {
		return nil, ReasonRequestLine
	}
	r.Method = methodName(method)
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(target) == 0 || !all(target, inTarget) {
		return nil, ReasonRequestLine
	}
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.http10 = true
	default:
		if rest, ok := bytes.CutPrefix(version, []byte("HTTP/")); ok && len(rest) == 3 && isDigit(rest[0]) && rest[1] == '.' && isDigit(rest[2]) {
			return nil, ReasonVersion
		}
		return nil, ReasonRequestLine
	}
	return target, ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// methodName returns the method as a string, the usual ones without making one.
func methodName(b []byte) string {
	for _, name := range [...]string{"GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"} {
		if string(b) == name {
			return name
		}
	}
	return string(b)
}

// parseTarget reads the forms of RFC 9112, 3.2, and returns the authority of the absolute form.
func (r *Request) parseTarget(target []byte) (authority []byte, reason Reason) {
	path := target
	switch {
	case r.Method == "CONNECT":
		return nil, ReasonConnect
	case target[0] == '/':
	case string(target) == "*":
		if r.Method != "OPTIONS" {
			return nil, ReasonTarget
		}
	default:
		const scheme = "http://"
		if len(target) < len(scheme) || !sameName(target[:len(scheme)], scheme) {
			return nil, ReasonTarget
		}
		slash := bytes.IndexByte(target[len(scheme):], '/')
		if slash <= 0 {
			return nil, ReasonTarget
		}
		authority, path = target[len(scheme):len(scheme)+slash], target[len(scheme)+slash:]
	}
	r.Path = string(path)
	if !validEscapes(path) {
		return nil, ReasonTarget
	}
	return authority, ""
}

// validEscapes reports whether each "%" before the query begins an escape.
func validEscapes[T string | []byte](path T) bool {
	for i := 0; i < len(path) && path[i] != '?'; i++ {
		if path[i] == '%' {
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return false
			}
			i += 2
		}
	}
	return true
}

// parseHost wants one Host, which HTTP/1.0 may leave out, and the same authority in a target that has one.
func (r *Request) parseHost(authority []byte, last *knownHost) Reason {
	var raw []byte
	found := false
	for i := range r.fields {
		if r.fields[i].known != hHost {
			continue
		}
		if found {
			return ReasonHost
		}
		raw, found = r.fields[i].valueOf(r.head), true
	}
	if !found {
		switch {
		case !r.http10:
			return ReasonMissingHost
		case authority != nil:
			return ReasonHostMismatch
		}
		return ""
	}
	if last.raw == "" || last.raw != string(raw) {
		name := string(raw)
		host, ok := hostName(name)
		if !ok {
			return ReasonHost
		}
		*last = knownHost{raw: name, host: host}
	}
	r.Host = last.host
	if authority != nil && !sameName(authority, raw) {
		return ReasonHostMismatch
	}
	return ""
}

// hostName returns what stands before the port, in lower case. An IPv6 address loses its brackets.
func hostName(raw string) (string, bool) {
	if len(raw) == 0 || len(raw) > 255+6 {
		return "", false
	}
	host, port := raw, ""
	if raw[0] == '[' {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", false
		}
		host, port = host[1:end], host[end+1:]
		if address, err := netip.ParseAddr(host); err != nil || !address.Is6() || address.Zone() != "" {
			return "", false
		}
	} else {
		if colon := strings.IndexByte(host, ':'); colon >= 0 {
			host, port = host[:colon], host[colon:]
		}
		if host == "" || !all(host, inHost) {
			return "", false
		}
	}
	if port == "" {
		return strings.ToLower(host), true
	}
	_, err := strconv.ParseUint(port[1:], 10, 32)
	return strings.ToLower(host), port[0] == ':' && len(port) <= 6 && err == nil
}

func (r *Request) parseExpect() Reason {
	for i := range r.fields {
		f := &r.fields[i]
		if f.known != hExpect {
			continue
		}
		if r.http10 {
			f.drop = true // RFC 9110, 10.1.1: to be ignored
			continue
		}
		if r.expect || !sameName(f.valueOf(r.head), "100-continue") {
			return ReasonExpectation
		}
		r.expect = r.framing.chunked || r.framing.length > 0
	}
	return ""
}

// maxProtocols bounds the protocols of Upgrade, since each of a response is looked for in the request's.
const maxProtocols = 8

// parseUpgrade finds out whether the request offers to switch protocols. An offer that is not taken is not forwarded:
// h2c, whose requests no rule would see, and one with a body, in HTTP/1.0, in several lines or of many protocols. A
// server then answers the request in HTTP/1.1.
func (r *Request) parseUpgrade() {
	o := &r.options
	if !o.upgrade || o.upgrades != 1 || r.http10 || r.framing.chunked || r.framing.length > 0 || len(o.offer) == 0 {
		return
	}
	known, protocols := true, 0
	elements(o.offer, func(protocol []byte) bool {
		name, _, _ := bytes.Cut(protocol, []byte("/"))
		protocols++
		known = protocols <= maxProtocols && !sameName(name, "h2c") && !sameName(name, "h2") && !sameName(name, "http") && !sameName(name, "tls")
		return known
	})
	if known {
		r.offer = o.offer
	}
}

// writeTo writes the head as it is forwarded: the same request line and lines, except lines that concern only the
// client's connection. last announces that no further request follows.
func (r *Request) writeTo(w *writer, last bool) error {
	w.write(r.head[:r.line])
	writeFields(w, r.head, r.fields, r.framing)
	return writeOptions(w, last && !r.http10, r.options.trailers && !r.http10, r.offer)
}

// writeOptions writes our own Connection header and what it lists, and the end of the head.
func writeOptions(w *writer, last, trailers bool, upgrade []byte) error {
	switch {
	case upgrade != nil:
		w.writeText("Connection: Upgrade\r\nUpgrade: ")
		w.write(upgrade)
		return w.writeText("\r\n\r\n")
	case last && trailers:
		return w.writeText("Connection: close, TE\r\nTE: trailers\r\n\r\n")
	case last:
		return w.writeText("Connection: close\r\n\r\n")
	case trailers:
		return w.writeText("Connection: TE\r\nTE: trailers\r\n\r\n")
	}
	return w.writeText("\r\n")
}

// Header is one header of a request of HTTP/2. Its name is in lower case, as there.
type Header struct {
	Name, Value string
	Sensitive   bool // not to be kept in tables of compression
}

// NewRequest returns the parts of a request of HTTP/2 that rules decide about, as far as it is valid. The authority is
// from :authority, or from Host without one. The headers are the forwarded ones, without pseudo-headers and Host; they
// are kept.
func NewRequest(method, path, authority string, headers []Header) (r Request, reason Reason) {
	if len(method) == 0 || !all(method, inToken) {
		return r, ReasonRequestLine
	}
	r.Method = method
	switch {
	case method == http.MethodConnect:
		return r, ReasonConnect
	case path == "" || !all(path, inTarget) || path[0] != '/' && (path != "*" || method != http.MethodOptions) || !validEscapes(path):
		return r, ReasonTarget
	}
	r.Path = path
	if authority == "" {
		return r, ReasonMissingHost
	}
	host, ok := hostName(authority)
	if !ok {
		return r, ReasonHost
	}
	r.Host, r.headers = host, headers
	return r, ""
}
