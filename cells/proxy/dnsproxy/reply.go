package dnsproxy

import (
	"encoding/binary"
	"errors"
)

// Denied is the reply to a query for a name that no rule allows. It is a pflag.Value.
type Denied uint8

const (
	// NXDomain makes every resolver continue with its search list.
	NXDomain Denied = iota
	// Refused says that the name was not looked up. The resolver of musl asks again for 5 s, and then ends the search.
	Refused
)

// String implements pflag.Value.
func (d *Denied) String() string { return [...]string{"nxdomain", "refused"}[*d] }

// Set implements pflag.Value.
func (d *Denied) Set(text string) error {
	for _, known := range []Denied{NXDomain, Refused} {
		if text == known.String() {
			*d = known
			return nil
		}
	}
	return errors.New("want nxdomain or refused")
}

// Type implements pflag.Value.
func (*Denied) Type() string { return "code" }

func (d Denied) code() int { return [...]int{codeName, codeRefused}[d] }

// makeReply returns what the pod hears of a query that is not answered with what a server said; nil when it hears
// nothing.
func makeReply(m []byte, q question, o Outcome, denied Denied) []byte {
	code := o.code()
	if o == Policy {
		code = denied.code()
	}
	if code == noReply || len(m) < headerSize {
		return nil
	}
	flags := word(m, 2)&(maskOpcode|bitRecursion|bitCheckingOff) | bitResponse | uint16(code)
	if flags&bitRecursion != 0 {
		flags |= bitAvailable // or clients warn that it is not
	}
	r := make([]byte, 0, max(q.end, headerSize)+optSize)
	r = append(r, m[:2]...)
	r = binary.BigEndian.AppendUint16(r, flags)
	r = append(r, make([]byte, headerSize-4)...)
	if q.end == 0 {
		return r
	}
	r[5] = 1 // question
	r = append(r, m[headerSize:q.end]...)
	if q.opt {
		r[11] = 1 // additional record
		r = appendOPT(r, q, o.extended())
	}
	return r
}

// optSize is the size of an OPT record with an extended error.
const optSize = 11 + 6

// appendOPT appends the record that a client with EDNS has to get (RFC 6891).
func appendOPT(r []byte, q question, extended uint16) []byte {
	b := binary.BigEndian
	r = append(r, 0)
	r = b.AppendUint16(r, typeOPT)
	r = b.AppendUint16(r, ourUDP)
	r = b.AppendUint32(r, uint32(q.dnssec))
	if extended == 0 {
		return b.AppendUint16(r, 0)
	}
	r = b.AppendUint16(r, 6)
	r = b.AppendUint16(r, 15) // the option with an extended error
	r = b.AppendUint16(r, 2)
	return b.AppendUint16(r, extended)
}

// truncated returns an answer without records, which has a client ask again over TCP.
func truncated(answer []byte, end int) []byte {
	r := append([]byte(nil), answer[:end]...)
	r[2] |= bitTruncated >> 8
	clear(r[6:headerSize])
	return r
}
