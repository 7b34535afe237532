package httpproxy

import (
	"bytes"
	"net/http"
)

// response is the head of a response.
type response struct {
	status  int
	head    []byte
	line    int // length of the status line with its end
	fields  []field
	framing framing
	options options
	http10  bool
}

// parse reads a whole head, which p refers to. toHTTP10 is that the request was of HTTP/1.0.
func (p *response) parse(head []byte, limit int, toHTTP10 bool) (reason Reason) {
	*p = response{head: head, fields: p.fields[:0]}
	line, ok := firstLine(head)
	if !ok || !p.parseLine(line) {
		return ReasonServerNotHTTP
	}
	p.line = len(line) + 2
	if p.fields, reason = parseFields(head, p.line, p.fields, limit); reason != "" {
		return ReasonResponse
	}
	if p.framing, reason = readFraming(head, p.fields, p.http10 || toHTTP10); reason != "" {
		return ReasonResponse
	}
	if p.options, ok = readOptions(head, p.fields); !ok {
		return ReasonResponse
	}
	// RFC 9110, 8.6 and RFC 9112, 6.1: such a response has no body, and some recipients would read one.
	if (p.interim() || p.status == http.StatusNoContent) && (p.framing.chunked || p.framing.length > 0) {
		return ReasonResponse
	}
	return ""
}

// parseLine reads "HTTP/1.1 200 OK". Without a reason phrase the space before it may be missing, as it often is.
func (p *response) parseLine(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1."))
	if !ok || len(rest) < 5 || rest[0] != '0' && rest[0] != '1' || rest[1] != ' ' {
		return false
	}
	p.http10 = rest[0] == '0'
	for _, c := range rest[2:5] {
		if !isDigit(c) {
			return false
		}
		p.status = p.status*10 + int(c-'0')
	}
	phrase := rest[5:]
	return p.status >= 100 && (len(phrase) == 0 || phrase[0] == ' ' && all(phrase, inValue))
}

func (p *response) interim() bool { return p.status < 200 }

// bodyless reports whether no body follows the head, whatever it says (RFC 9112, 6.3).
func (p *response) bodyless(toHEAD bool) bool {
	return toHEAD || p.interim() || p.status == http.StatusNoContent || p.status == http.StatusNotModified
}

// untilClose reports whether the body ends with the server's connection.
func (p *response) untilClose(toHEAD bool) bool {
	return !p.bodyless(toHEAD) && !p.framing.chunked && p.framing.length < 0
}

// accepts reports whether the protocols that the server switches to were all offered.
func (p *response) accepts(offer string) bool {
	if offer == "" || !p.options.upgrade || p.options.upgrades != 1 || len(p.options.offer) == 0 {
		return false
	}
	all, protocols := true, 0
	elements(p.options.offer, func(protocol []byte) bool {
		offered := false
		protocols++
		elements([]byte(offer), func(o []byte) bool {
			offered = sameName(o, protocol)
			return !offered
		})
		all = offered && protocols <= maxProtocols
		return all
	})
	return all
}

// writeTo writes the head as it is forwarded, in our own version (RFC 9110, 2.5). last announces that no further
// response follows.
func (p *response) writeTo(w *writer, last bool) error {
	const version = "HTTP/1.1"
	w.writeText(version)
	w.write(p.head[len(version):p.line])
	writeFields(w, p.head, p.fields, p.framing)
	var upgrade []byte
	if p.options.upgrade && p.options.upgrades == 1 && (p.status == http.StatusSwitchingProtocols || p.status == http.StatusUpgradeRequired && !last) {
		upgrade = p.options.offer
	}
	return writeOptions(w, last, false, upgrade)
}
