package httpproxy

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// field is one header line: offsets in the head that it is part of.
type field struct {
	start, colon, value, valueEnd, end int32
	known                              known
	drop                               bool // it is not forwarded
}

func (f *field) nameOf(head []byte) []byte  { return head[f.start:f.colon] }
func (f *field) valueOf(head []byte) []byte { return head[f.value:f.valueEnd] }

// known is a header that the proxy itself understands.
type known uint8

const (
	other known = iota
	hConnection
	hContentLength
	hExpect
	hHost
	hKeepAlive
	hProxyConnection
	hTE
	hTrailer
	hTransferEncoding
	hUpgrade
	hDisguised // Content-Length or Transfer-Encoding with "_", which some servers read as "-"
)

func knownOf(name []byte) known {
	switch len(name) {
	case 2:
		return knownIf(name, "te", hTE)
	case 4:
		return knownIf(name, "host", hHost)
	case 6:
		return knownIf(name, "expect", hExpect)
	case 7:
		return max(knownIf(name, "trailer", hTrailer), knownIf(name, "upgrade", hUpgrade))
	case 10:
		return max(knownIf(name, "connection", hConnection), knownIf(name, "keep-alive", hKeepAlive))
	case 14:
		return framingIf(name, "content-length", hContentLength)
	case 16:
		return knownIf(name, "proxy-connection", hProxyConnection)
	case 17:
		return framingIf(name, "transfer-encoding", hTransferEncoding)
	}
	return other
}

func knownIf(name []byte, lower string, k known) known {
	if sameName(name, lower) {
		return k
	}
	return other
}

func framingIf(name []byte, lower string, k known) known {
	dash := strings.IndexByte(lower, '-')
	if name[dash] == '_' && sameName(name[:dash], lower[:dash]) && sameName(name[dash+1:], lower[dash+1:]) {
		return hDisguised
	}
	return knownIf(name, lower, k)
}

// sameName compares ASCII without regard to case.
func sameName[A, B string | []byte](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if toLower(a[i]) != toLower(b[i]) {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Classes of characters, RFC 9110 5.5 and 5.6.2, RFC 3986 3.2.2.
const (
	inToken  = 1 << iota // tchar
	inValue              // VCHAR, SP, HTAB, obs-text
	inTarget             // visible, and not "#"
	inHost               // of the names and IPv4 addresses that we take
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		visible := c > ' ' && c < 0x7f
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if alnum || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0 {
			t[c] |= inToken
		}
		if visible || c == ' ' || c == '\t' || c >= 0x80 {
			t[c] |= inValue
		}
		if visible && c != '#' {
			t[c] |= inTarget
		}
		if alnum || c == '.' || c == '-' || c == '_' {
			t[c] |= inHost
		}
	}
	return t
}()

// all reports whether b has only characters of the class. An empty b has.
func all[T string | []byte](b T, of uint8) bool {
	for i := range len(b) {
		if class[b[i]]&of == 0 {
			return false
		}
	}
	return true
}

// headEnd returns the length of the head at the beginning of b, with its empty line, or 0 if b does not hold the whole
// of it. The first scanned bytes were looked at before. An end of bare line feeds ends the head as well, and is an
// error when it is parsed.
func headEnd(b []byte, scanned int) int {
	for at := max(scanned-3, 0); ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i + 1
		switch rest := b[at:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return at + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return at + 2
		}
	}
}

// firstLine returns the first line of a head, without its end.
func firstLine(head []byte) ([]byte, bool) {
	i := bytes.IndexByte(head, '\n')
	if i < 1 || head[i-1] != '\r' {
		return nil, false
	}
	return head[:i-1], true
}

// parseFields reads the header lines of head from at on, with the empty line that ends them.
func parseFields(head []byte, at int, fields []field, limit int) ([]field, Reason) {
	if len(head) > math.MaxInt32 {
		return fields, ReasonHeadTooLarge
	}
	for {
		if head[at] == '\r' {
			if len(head) == at+2 && head[at+1] == '\n' {
				return fields, ""
			}
			return fields, ReasonHeader
		}
		if len(fields) == limit {
			return fields, ReasonHeadTooLarge
		}
		f, ok := parseField(head, at)
		if !ok || f.known == hDisguised || int(f.end) >= len(head) {
			return fields, ReasonHeader
		}
		fields = append(fields, f)
		at = int(f.end)
	}
}

// parseField reads the line that begins at at.
func parseField(head []byte, at int) (f field, ok bool) {
	end := bytes.IndexByte(head[at:], '\n')
	if end < 1 || head[at+end-1] != '\r' {
		return f, false
	}
	end += at + 1
	colon := at
	for class[head[colon]]&inToken != 0 {
		colon++
	}
	if colon == at || head[colon] != ':' {
		return f, false
	}
	value, valueEnd := colon+1, end-2
	for value < valueEnd && isBlank(head[value]) {
		value++
	}
	for value < valueEnd && isBlank(head[valueEnd-1]) {
		valueEnd--
	}
	if !all(head[value:valueEnd], inValue) {
		return f, false
	}
	f = field{start: int32(at), colon: int32(colon), value: int32(value), valueEnd: int32(valueEnd), end: int32(end)}
	f.known = knownOf(head[at:colon])
	return f, true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// framing is what a head says about the length of the body.
type framing struct {
	length  int64 // of Content-Length; -1 without one
	chunked bool
}

// readFraming takes no length that another recipient could read otherwise: no second Content-Length, even an equal one,
// no list or sign, none together with Transfer-Encoding, and no coding but "chunked" (RFC 9112, 6.1 to 6.3 and 11.2).
func readFraming(head []byte, fields []field, http10 bool) (framing, Reason) {
	f := framing{length: -1}
	for i := range fields {
		switch fields[i].known {
		case hContentLength:
			digits := fields[i].valueOf(head)
			n, err := strconv.ParseUint(string(digits), 10, 63)
			if err != nil || len(digits) > 18 || f.length >= 0 {
				return f, ReasonLength
			}
			f.length = int64(n)
		case hTransferEncoding:
			if f.chunked || http10 || !sameName(fields[i].valueOf(head), "chunked") {
				return f, ReasonTransferCoding
			}
			f.chunked = true
		}
	}
	if f.chunked && f.length >= 0 {
		return f, ReasonLengthTwice
	}
	return f, ""
}

// elements calls yield with each element of a list in a header, RFC 9110 5.6.1, until it returns false.
func elements(list []byte, yield func([]byte) bool) {
	for len(list) > 0 {
		element, rest, _ := bytes.Cut(list, []byte(","))
		if element = bytes.Trim(element, " \t"); len(element) > 0 && !yield(element) {
			return
		}
		list = rest
	}
}
