package dnsproxy

import (
	"bytes"

	"golang.org/x/net/dns/dnsmessage"

	"porin.dev/porin/cells/policy/dnsname"
)

// question is what was read of a query.
type question struct {
	name   string
	kind   uint16
	end    int // where it ends in the message; 0 when it could not be read
	opt    bool
	dnssec uint16 // the bit DO
	udp    int    // how large an answer the client receives over UDP
}

// readQuestion reads a query, and returns another outcome than "" when it is not to be forwarded, whatever the rules
// are.
func readQuestion(m []byte) (question, Outcome) {
	q := question{udp: minUDP}
	if len(m) < headerSize {
		return q, Malformed
	}
	flags := word(m, 2)
	switch {
	case flags&bitResponse != 0:
		return q, Response
	case flags&maskOpcode != 0:
		return q, Unsupported
	case len(m) > maxQuery || flags&(bitTruncated|maskCode) != 0:
		return q, Malformed
	case word(m, 4) != 1 || word(m, 6) != 0 || word(m, 8) != 0 || word(m, 10) > 1:
		// An IXFR is the one query that has more, and is not forwarded either.
		return q, Malformed
	}
	var buffer [256]byte
	text, end, err := dnsname.AppendText(buffer[:0], m, headerSize, false)
	if err != nil || end+4 > len(m) {
		return q, Malformed
	}
	kind, class := word(m, end), word(m, end+2)
	q.name, q.kind, q.end = string(text), kind, end+4
	if rest, ok := q.readOPT(m, q.end, word(m, 10)); !ok || rest != len(m) {
		return q, Malformed
	}
	if class != classIN || kind == 0 || kind == typeOPT || kind >= 128 && kind < typeANY {
		return q, Kind
	}
	return q, ""
}

// readOPT reads the additional section.
func (q *question) readOPT(m []byte, off int, records uint16) (end int, ok bool) {
	if records == 0 {
		return off, true
	}
	if off >= len(m) || m[off] != 0 {
		return 0, false
	}
	h, ok := readRecordHeader(m, off+1)
	if !ok || h.kind != typeOPT {
		return 0, false
	}
	for o := h.data; o != h.end; {
		if o+4 > h.end { // an option was cut, or was longer than the record
			return 0, false
		}
		o += 4 + int(word(m, o+2))
	}
	q.opt, q.dnssec = true, uint16(h.ttl)&(1<<15)
	q.udp = min(max(int(h.class), minUDP), maxUDP)
	return h.end, true
}

// confirmQuestion reports whether another parser reads the same question.
func confirmQuestion(m []byte, q question) bool {
	var p dnsmessage.Parser
	header, err := p.Start(m)
	if err != nil || header.Response || header.OpCode != 0 {
		return false
	}
	other, err := p.Question()
	if err != nil || uint16(other.Type) != q.kind || other.Class != dnsmessage.ClassINET {
		return false
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return false
	}
	return sameName(m, other.Name.Data[:other.Name.Length])
}

// sameName compares the name of the question with one whose labels end with dots.
func sameName(m, name []byte) bool {
	off := headerSize
	for n := int(m[off]); n != 0; n = int(m[off]) {
		label, ok := bytes.CutPrefix(name, m[off+1:off+1+n])
		if !ok || len(label) == 0 || label[0] != '.' {
			return false
		}
		name, off = label[1:], off+1+n
	}
	return len(name) == 0 || off == headerSize && string(name) == "."
}
