package http2proxy

import (
	"cmp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/proxy/httpproxy"
)

// block is a header block: the head of a request or response, or trailers.
type block struct {
	stream uint32
	end    bool // of the stream
	bytes  int  // compressed
	size   int  // of the fields, as RFC 9113, 10.5.1 counts
	held   int  // bytes of memory, while it is not whole
	limits *Limits

	fields   []httpproxy.Header
	tooLarge bool // fields are missing

	// What check has found.
	method, scheme, path, authority, status, host string
	pseudo                                        int // fields that are pseudo-headers
	length                                        int64
	grpc, protocol                                bool
}

var blocks = sync.Pool{New: func() any { return &block{fields: make([]httpproxy.Header, 0, 32)} }}

func newBlock(stream uint32, end bool, limits *Limits) *block {
	b := blocks.Get().(*block)
	*b = block{stream: stream, end: end, limits: limits, fields: b.fields, length: -1}
	return b
}

func (b *block) release() {
	clear(b.fields)
	*b = block{fields: b.fields[:0]}
	blocks.Put(b)
}

// add is called with each decoded field.
func (b *block) add(d *hpack.Decoder, f hpack.HeaderField) {
	b.size += int(f.Size())
	if b.size > b.limits.HeadBytes || len(b.fields) == b.limits.Headers {
		b.tooLarge = true
		d.SetEmitEnabled(false)
		return
	}
	b.fields = append(b.fields, httpproxy.Header(f))
}

// check reads the fields of a head or of trailers. Pseudo-headers come first, each once (RFC 9113, 8.3).
func (b *block) check() httpproxy.Reason {
	for i := range b.fields {
		f := &b.fields[i]
		if strings.HasPrefix(f.Name, ":") {
			if b.pseudo < i || !b.checkPseudo(f) {
				return httpproxy.ReasonPseudoHeader
			}
			b.pseudo++
			continue
		}
		if !validName(f.Name) || !validValue(f.Value) {
			return httpproxy.ReasonHeader
		}
		if reason := b.checkKnown(f); reason != "" {
			return reason
		}
	}
	return ""
}

func (b *block) checkPseudo(f *httpproxy.Header) bool {
	var to *string
	switch f.Name {
	case ":method":
		to = &b.method
	case ":scheme":
		to = &b.scheme
	case ":path":
		to = &b.path
	case ":authority":
		to = &b.authority
	case ":status":
		to = &b.status
	case ":protocol":
		b.protocol = true
		return true
	default:
		return false
	}
	if *to != "" || f.Value == "" {
		return false
	}
	*to = f.Value
	return true
}

// checkKnown reads headers that have a meaning for the proxy. Those that concern only one connection must not be there
// (RFC 9113, 8.2.2).
func (b *block) checkKnown(f *httpproxy.Header) httpproxy.Reason {
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "transfer_encoding", "content_length":
		return httpproxy.ReasonHeader
	case "te":
		if !strings.EqualFold(f.Value, "trailers") {
			return httpproxy.ReasonHeader
		}
	case "host":
		if b.host != "" || f.Value == "" {
			return httpproxy.ReasonHost
		}
		b.host = f.Value
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || b.length >= 0 {
			return httpproxy.ReasonLength
		}
		b.length, f.Value = int64(n), strconv.FormatUint(n, 10) // without leading zeros
	case "content-type":
		b.grpc = b.grpc || isGRPC(f.Value)
	}
	return ""
}

// isGRPC knows "application/grpc" with what may follow it, such as "+proto".
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// request reads the head of a request. It returns what stands in it also with a reason, as far as it was read.
func (b *block) request() (httpproxy.Request, httpproxy.Reason) {
	reason := b.check()
	r := httpproxy.Request{Method: b.method, Path: b.path}
	switch {
	case b.tooLarge:
		return r, httpproxy.ReasonHeadTooLarge
	case reason != "":
		return r, reason
	case b.method == "CONNECT":
		return httpproxy.Request{Method: b.method}, httpproxy.ReasonConnect
	case b.method == "" || b.path == "" || b.scheme != "http" && b.scheme != "https" || b.status != "" || b.protocol:
		return r, httpproxy.ReasonPseudoHeader
	case b.host != "" && b.authority != "" && !strings.EqualFold(b.host, b.authority):
		return r, httpproxy.ReasonHostMismatch
	}
	return httpproxy.NewRequest(b.method, b.path, cmp.Or(b.authority, b.host), b.fields[b.pseudo:])
}

// response returns the status of the head of a response.
func (b *block) response() (status int, ok bool) {
	if b.tooLarge || b.check() != "" || b.pseudo != 1 || len(b.status) != 3 {
		return 0, false
	}
	status, err := strconv.Atoi(b.status)
	return status, err == nil && status >= 100 && status < 1000 && b.status[0] != '+'
}

// trailers reports whether they may follow a body. Those that say where a message goes or ends must not be there (RFC
// 9110, 6.5.1).
func (b *block) trailers() bool {
	return b.end && !b.tooLarge && b.check() == "" && b.pseudo == 0 && b.host == "" && b.length < 0
}

func validName(name string) bool {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(name)
}

func validValue(v string) bool {
	return v == "" || !isBlank(v[0]) && !isBlank(v[len(v)-1]) && httpguts.ValidHeaderFieldValue(v)
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
