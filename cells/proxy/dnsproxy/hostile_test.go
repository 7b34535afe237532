package dnsproxy

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/model"
)

// wire returns a message with flags, counts, and what follows the header.
func wire(flags uint16, counts [4]uint16, rest ...string) []byte {
	m := binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, flags)
	for _, n := range counts {
		m = binary.BigEndian.AppendUint16(m, n)
	}
	return append(m, strings.Join(rest, "")...)
}

const (
	wireName = "\x07example\x03com\x00"
	wireA    = "\x00\x01\x00\x01"
	wireOPT  = "\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00"
	rd       = bitRecursion
)

// TestHandleRefuses has messages of pods that are not forwarded, with rules that match every name.
func TestHandleRefuses(t *testing.T) {
	one := [4]uint16{1, 0, 0, 0}
	withOPT := [4]uint16{1, 0, 0, 1}
	aRecord := wireName + wireA + "\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01"
	nothing := noReply
	for _, tt := range []struct {
		name    string
		message []byte
		outcome Outcome
		code    int
	}{
		{"nothing", nil, Malformed, nothing},
		{"half a header", wire(rd, one)[:11], Malformed, nothing},
		{"a response", wire(rd|bitResponse, one, wireName, wireA), Response, nothing},
		{"a response without question", wire(bitResponse, [4]uint16{}), Response, nothing},
		{"a response with another opcode", wire(bitResponse|5<<11, one, wireName, wireA), Response, nothing},
		{"IQUERY", wire(1<<11, [4]uint16{0, 1, 0, 0}, aRecord), Unsupported, codeNotImplemented},
		{"STATUS", wire(2<<11, [4]uint16{}), Unsupported, codeNotImplemented},
		{"NOTIFY", wire(4<<11, one, wireName, "\x00\x06\x00\x01"), Unsupported, codeNotImplemented},
		{"UPDATE", wire(5<<11, [4]uint16{1, 0, 1, 0}, wireName, "\x00\x06\x00\x01", aRecord), Unsupported, codeNotImplemented},
		{"stateful operation", wire(6<<11, [4]uint16{}), Unsupported, codeNotImplemented},
		{"truncated flag", wire(rd|bitTruncated, one, wireName, wireA), Malformed, codeFormat},
		{"response code", wire(rd|3, one, wireName, wireA), Malformed, codeFormat},
		{"no question", wire(rd, [4]uint16{}), Malformed, codeFormat},
		{"no question, with a name", wire(rd, [4]uint16{}, wireName, wireA), Malformed, codeFormat},
		{"two questions", wire(rd, [4]uint16{2, 0, 0, 0}, wireName, wireA, "\x01b\x00", wireA), Malformed, codeFormat},
		{"65535 questions", wire(rd, [4]uint16{65535, 0, 0, 0}, wireName, wireA), Malformed, codeFormat},
		{"an answer", wire(rd, [4]uint16{1, 1, 0, 0}, wireName, wireA, aRecord), Malformed, codeFormat},
		{"an answer that is not there", wire(rd, [4]uint16{1, 1, 0, 0}, wireName, wireA), Malformed, codeFormat},
		{"authority that is not there", wire(rd, [4]uint16{1, 0, 1, 0}, wireName, wireA), Malformed, codeFormat},
		{"a second additional record that is not there", wire(rd, [4]uint16{1, 0, 0, 2}, wireName, wireA, wireOPT), Malformed, codeFormat},
		{"authority", wire(rd, [4]uint16{1, 0, 1, 0}, wireName, wireA, aRecord), Malformed, codeFormat},
		{"an address as additional record", wire(rd, withOPT, wireName, wireA, aRecord), Malformed, codeFormat},
		{"two OPT records", wire(rd, [4]uint16{1, 0, 0, 2}, wireName, wireA, wireOPT, wireOPT), Malformed, codeFormat},
		{"OPT of a name", wire(rd, withOPT, wireName, wireA, "\x01a", wireOPT), Malformed, codeFormat},
		{"OPT by a pointer", wire(rd, withOPT, wireName, wireA, "\xc0\x18", wireOPT[1:]), Malformed, codeFormat},
		{"half an OPT record", wire(rd, withOPT, wireName, wireA, wireOPT[:9]), Malformed, codeFormat},
		{"OPT with half an option", wire(rd, withOPT, wireName, wireA, wireOPT[:10], "\x03\x00\x0a\x00"), Malformed, codeFormat},
		{"OPT with an option that is too long", wire(rd, withOPT, wireName, wireA, wireOPT[:10], "\x05\x00\x0a\x00\x02\x00"), Malformed, codeFormat},
		{"OPT longer than the message", wire(rd, withOPT, wireName, wireA, wireOPT[:9], "\x00\x01"), Malformed, codeFormat},
		{"no OPT although announced", wire(rd, withOPT, wireName, wireA), Malformed, codeFormat},
		{"OPT although not announced", wire(rd, one, wireName, wireA, wireOPT), Malformed, codeFormat},
		{"a byte behind the question", wire(rd, one, wireName, wireA, "\x00"), Malformed, codeFormat},
		{"a message behind the message", wire(rd, one, wireName, wireA, string(wire(rd, one, wireName, wireA))), Malformed, codeFormat},
		{"no name", wire(rd, one), Malformed, codeFormat},
		{"name without end", wire(rd, one, "\x07example\x03com"), Malformed, codeFormat},
		{"no type", wire(rd, one, wireName), Malformed, codeFormat},
		{"half a class", wire(rd, one, wireName, wireA[:3]), Malformed, codeFormat},
		{"pointer to itself", wire(rd, one, "\xc0\x0c", wireA), Malformed, codeFormat},
		{"pointer into the header", wire(rd, one, "\x03www\xc0\x04", wireA), Malformed, codeFormat},
		{"pointer behind the question", wire(rd, one, "\xc0\x12", wireA, wireName), Malformed, codeFormat},
		{"label of 64 bytes", wire(rd, one, "\x40", strings.Repeat("a", 64), "\x00", wireA), Malformed, codeFormat},
		{"name of 256 bytes", wire(rd, one, strings.Repeat("\x01a", 127), "\x01\x00", wireA), Malformed, codeFormat},
		{"too large", wire(rd, withOPT, wireName, wireA, wireOPT[:9], "\x10\x00\x00\x0c\x0f\xfc", strings.Repeat("\x00", 0xffc)), Malformed, codeFormat},
		{"dot inside a label", wire(rd, one, "\x0bexample.com\x00", wireA), Ambiguous, codeRefused},
		{"dot inside a label of another domain", wire(rd, one, "\x05a.com\x03org\x00", wireA), Ambiguous, codeRefused},
		{"AXFR", wire(rd, one, wireName, "\x00\xfc\x00\x01"), Kind, codeRefused},
		{"IXFR without authority", wire(rd, one, wireName, "\x00\xfb\x00\x01"), Kind, codeRefused},
		{"IXFR", wire(rd, [4]uint16{1, 0, 1, 0}, wireName, "\x00\xfb\x00\x01", aRecord), Malformed, codeFormat},
		{"MAILB", wire(rd, one, wireName, "\x00\xfd\x00\x01"), Kind, codeRefused},
		{"TKEY", wire(rd, one, wireName, "\x00\xf9\x00\x01"), Kind, codeRefused},
		{"TSIG", wire(rd, one, wireName, "\x00\xfa\x00\x01"), Kind, codeRefused},
		{"type OPT", wire(rd, one, wireName, "\x00\x29\x00\x01"), Kind, codeRefused},
		{"type 0", wire(rd, one, wireName, "\x00\x00\x00\x01"), Kind, codeRefused},
		{"class CH", wire(rd, one, "\x07version\x04bind\x00", "\x00\x10\x00\x03"), Kind, codeRefused},
		{"class ANY", wire(rd, one, wireName, "\x00\x01\x00\xff"), Kind, codeRefused},
		{"class of mDNS with the bit for unicast", wire(0, one, wireName, "\x00\x01\x80\x01"), Kind, codeRefused},
	} {
		for _, tcp := range []bool{false, true} {
			everything := compile(t, model.DNSRule{Pattern: "*"})
			p := newProxy(t, func(c *Config) { c.Allows = func(_ Query, name string) bool { return everything.Match(name) } })
			got := p.Handle(t.Context(), Query{Endpoint: 7, Client: podAddress, Server: serverAddress, TCP: tcp, Message: tt.message})
			rec := p.lastRecord(t)
			if rec.Outcome != tt.outcome || (got == nil) != (tt.code == noReply) {
				t.Errorf("%s: %s, reply %x, want %s with code %d", tt.name, rec.Outcome, got, tt.outcome, tt.code)
				continue
			}
			if got == nil {
				continue
			}
			if len(got) > len(tt.message)+optSize {
				t.Errorf("%s: a reply of %d bytes to %d", tt.name, len(got), len(tt.message))
			}
			m := unpack(t, got)
			if m.Id != 0x1234 || !m.Response || m.Rcode != tt.code || m.Opcode != int(word(tt.message, 2)&maskOpcode>>11) ||
				m.RecursionDesired != (word(tt.message, 2)&rd != 0) {
				t.Errorf("%s: the reply is %v", tt.name, m)
			}
		}
	}
}

// TestHandlePolicy refuses names that no rule matches, also names that only look like a matching one.
func TestHandlePolicy(t *testing.T) {
	for _, name := range []string{
		"example.net.", "com.", ".", "example.com.evil.org.", "wwwexample.com.", `www\.example.com.`, `a\.b.example.com.`,
		`www.example\.com.`, `a\000.example.com.`, `\255.example.com.`, `*.example.com.`, `example.com\000.`,
	} {
		for edns, denied := range map[bool]Denied{false: NXDomain, true: Refused} {
			p := newProxy(t, func(c *Config) { c.Denied = denied })
			q := query(name, dns.TypeAAAA)
			q.CheckingDisabled = true
			if edns {
				q.SetEdns0(1400, true)
			}
			r := p.ask(t, q)
			if r.Rcode != denied.code() || !slices.Equal(r.Question, q.Question) ||
				!r.RecursionAvailable || !r.CheckingDisabled || len(r.Answer)+len(r.Ns) != 0 {
				t.Errorf("%s: the pod got %v, want %v with its question", name, r, &denied)
			}
			p.expectOutcomes(t, Policy)
			if !edns {
				if len(r.Extra) != 0 {
					t.Errorf("%s: a client without EDNS got %v", name, r.Extra)
				}
				continue
			}
			want := &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked}
			if opt := r.IsEdns0(); opt == nil || !opt.Do() || len(opt.Option) != 1 || cmp.Diff(want, opt.Option[0]) != "" {
				t.Errorf("%s: the OPT record is %v, want the reason in it", name, opt)
			}
		}
	}
	p := newProxy(t, func(c *Config) { c.Allows = func(Query, string) bool { return false } })
	if r := p.ask(t, query("example.com.", dns.TypeA)); r.Rcode != dns.RcodeNameError {
		t.Errorf("without rules the pod got %v, want NXDOMAIN", r)
	}
}

// TestHandleKeepsMessage has the handler change no byte of the message that it was given.
func TestHandleKeepsMessage(t *testing.T) {
	s := newServer(t, answer(t))
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	for _, name := range []string{"example.com.", "example.net."} {
		m := pack(t, query(name, dns.TypeA))
		was := bytes.Clone(m)
		p.Handle(t.Context(), Query{Message: m})
		if !bytes.Equal(m, was) {
			t.Errorf("%s: the message is %x, and was %x", name, m, was)
		}
	}
}
