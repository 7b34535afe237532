package httpproxy

import "net/http"

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
