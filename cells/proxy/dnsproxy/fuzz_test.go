package dnsproxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
)

// recorder is a connection that keeps what is sent, and answers nothing.
type recorder struct {
	net.Conn
	sent []byte
}

func (r *recorder) Write(m []byte) (int, error) {
	r.sent = bytes.Clone(m)
	return len(m), nil
}

func (r *recorder) Read([]byte) (int, error)        { return 0, errors.New("no answer") }
func (r *recorder) Close() error                    { return nil }
func (r *recorder) SetReadDeadline(time.Time) error { return nil }

// FuzzQuery compares what is forwarded with what other libraries read.
func FuzzQuery(f *testing.F) {
	for _, name := range []string{"www.example.com.", "WWW.eXample.com.", "example.com.", `a\.b.example.com.`, `a\000.example.com.`, "."} {
		q := query(name, dns.TypeA)
		f.Add(pack(f, q), false)
		q.SetEdns0(1232, true)
		q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}}
		f.Add(pack(f, q), true)
	}
	f.Add(wire(rd, [4]uint16{1, 0, 0, 1}, wireName, wireA, wireOPT), true)
	f.Add(wire(rd, [4]uint16{1, 0, 0, 0}, "\x03www\xc0\x04", wireA), false)
	f.Add(wire(5<<11, [4]uint16{1, 0, 1, 0}, wireName, wireA), false)
	rules := compile(f, model.DNSRule{Pattern: "**.example.com"}, model.DNSRule{Name: "example.com"})
	everything := compile(f, model.DNSRule{Pattern: "*"})
	f.Fuzz(func(t *testing.T, m []byte, all bool) {
		conn := &recorder{}
		p := newProxy(t, func(c *Config) {
			c.Limits.Timeout = time.Millisecond // conn gives no answer
			c.Dial = func(context.Context, Query) (net.Conn, error) { return conn, nil }
			if all {
				c.Allows = func(_ Query, name string) bool { return everything.Match(name) }
			}
		})
		r := p.Handle(t.Context(), Query{Message: m})
		if r != nil && unpack(t, r).Id != word(m, 0) {
			t.Fatalf("the reply %x has another ID", r)
		}
		if len(p.records) != 1 {
			t.Fatalf("%d records, want 1", len(p.records))
		}
		if conn.sent == nil {
			return
		}
		if !bytes.Equal(conn.sent[2:], m[2:]) {
			t.Fatalf("%x was forwarded for %x", conn.sent, m)
		}
		rec := p.lastRecord(t)
		checkWithMiekg(t, m, rec, rules, all)
		checkWithDNSMessage(t, m, rec)
	})
}

func checkWithMiekg(t *testing.T, m []byte, rec Record, rules *dnsname.Rules, all bool) {
	t.Helper()
	name, end, err := dns.UnpackDomainName(m, headerSize)
	if err != nil || word(m, end) != rec.Type || word(m, end+2) != classIN {
		t.Fatalf("it reads %s, %d: %v", name, end, err)
	}
	text := strings.ToLower(strings.TrimSuffix(name, "."))
	if !all && (!rules.Match(text) || text != rec.Name || text != "example.com" && !strings.HasSuffix(text, ".example.com")) {
		t.Fatalf("it reads %s, which no rule matches; the record has %s", name, rec.Name)
	}
	var whole dns.Msg
	if err := whole.Unpack(m); err != nil {
		return // options that it wants to understand
	}
	if len(whole.Question) != 1 || whole.Question[0].Name != name ||
		whole.Response || whole.Opcode != dns.OpcodeQuery || len(whole.Answer)+len(whole.Ns) != 0 {
		t.Fatalf("it reads %v", whole)
	}
	for _, extra := range whole.Extra {
		if extra.Header().Rrtype != dns.TypeOPT {
			t.Fatalf("it reads the record %v", extra)
		}
	}
}

func checkWithDNSMessage(t *testing.T, m []byte, rec Record) {
	t.Helper()
	var p dnsmessage.Parser
	if _, err := p.Start(m); err != nil {
		t.Fatal(err)
	}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 || uint16(all[0].Type) != rec.Type {
		t.Fatalf("it reads %v: %v", all, err)
	}
	raw := strings.ToLower(strings.TrimSuffix(string(all[0].Name.Data[:all[0].Name.Length]), "."))
	if plain := !strings.Contains(rec.Name, `\`) && rec.Name != "."; plain && raw != rec.Name {
		t.Fatalf("it reads %s, and the record has %s", raw, rec.Name)
	}
}

// FuzzAnswer compares the addresses of an answer with another library's and a naive walk's.
func FuzzAnswer(f *testing.F) {
	q := query("example.com.", dns.TypeA)
	raw := pack(f, q)
	parsed, _ := readQuestion(raw)
	seed := func(records ...string) {
		r := new(dns.Msg).SetReply(q)
		for _, text := range records {
			r.Answer = append(r.Answer, record(f, text))
		}
		f.Add(pack(f, r)[parsed.end:], uint16(len(records)))
		r.Compress = true
		f.Add(pack(f, r)[parsed.end:], uint16(len(records)))
	}
	seed("example.com. 60 IN CNAME a.example.com.", "a.example.com. 60 IN A 192.0.2.1", "a.example.com. 60 IN AAAA 2001:db8::1")
	seed("example.com. 60 IN HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1", "example.com. 60 IN TXT a")
	seed("a.org. 60 IN A 192.0.2.9", "example.com. 60 IN CNAME b.org.", "b.org. 1 IN CNAME a.org.")
	f.Fuzz(func(t *testing.T, rest []byte, records uint16) {
		if len(rest) > 4096 {
			return
		}
		m := append(wire(bitResponse, [4]uint16{1, records, 0, 0}, string(raw[headerSize:parsed.end])), rest...)
		ours, ok := readAnswer(m, parsed)
		var theirs dns.Msg
		if theirs.Unpack(m) != nil || len(theirs.Answer) != int(records) {
			return
		}
		if !ok {
			t.Fatalf("%x was not read, and is %v", m, &theirs)
		}
		want := naiveAddresses(&theirs)
		for _, a := range ours.Addresses {
			if !slices.Contains(want, a.Addr) {
				t.Fatalf("%s was read of %v", a.Addr, &theirs)
			}
		}
		// It may read pointers that we do not follow. As it writes them, they say the same for both.
		again, err := theirs.Pack()
		if err != nil || len(again) < parsed.end || !bytes.Equal(again[headerSize:parsed.end], raw[headerSize:parsed.end]) {
			return
		}
		second, ok := readAnswer(again, parsed)
		if got := addressesOf(second); !ok || !slices.Equal(got, want) {
			t.Fatalf("%v was read of %v, want %v", got, &theirs, want)
		}
	})
}

func addressesOf(a Answer) (all []netip.Addr) {
	for _, one := range a.Addresses {
		all = append(all, one.Addr)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// naiveAddresses returns the addresses of the names that aliases lead to, sorted.
func naiveAddresses(m *dns.Msg) (all []netip.Addr) {
	add := func(raw []byte) {
		if addr, ok := netip.AddrFromSlice(raw); ok {
			all = append(all, addr.Unmap())
		}
	}
	names := []string{"example.com."}
	for i := 0; i < len(names) && i <= maxChain; i++ {
		for _, rr := range m.Answer {
			if h := rr.Header(); h.Class != dns.ClassINET || !strings.EqualFold(h.Name, names[i]) {
				continue
			}
			switch rr := rr.(type) {
			case *dns.A:
				add(rr.A)
			case *dns.AAAA:
				add(rr.AAAA)
			case *dns.HTTPS:
				hints(rr.SVCB, add)
			case *dns.SVCB:
				hints(*rr, add)
			case *dns.CNAME:
				same := func(known string) bool { return strings.EqualFold(known, rr.Target) }
				if len(names) == i+1 && !slices.ContainsFunc(names, same) {
					names = append(names, rr.Target)
				}
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

func hints(rr dns.SVCB, add func([]byte)) {
	for _, value := range rr.Value {
		switch value := value.(type) {
		case *dns.SVCBIPv4Hint:
			for _, ip := range value.Hint {
				if rr.Priority > 0 {
					add(ip.To4())
				}
			}
		case *dns.SVCBIPv6Hint:
			for _, ip := range value.Hint {
				if rr.Priority > 0 {
					add(ip.To16())
				}
			}
		}
	}
}
