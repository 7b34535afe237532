package dnsproxy

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/dnsname"
)

// read reads an answer to a question for example.com with these records.
func read(t testing.TB, change func(*dns.Msg), records ...string) (Answer, bool) {
	t.Helper()
	q := query("example.com.", dns.TypeA)
	r := new(dns.Msg).SetReply(q)
	r.Compress = true
	for _, text := range records {
		r.Answer = append(r.Answer, record(t, text))
	}
	if change != nil {
		change(r)
	}
	raw := pack(t, r)
	parsed, outcome := readQuestion(pack(t, q))
	if outcome != "" {
		t.Fatal(outcome)
	}
	return readAnswer(raw, parsed)
}

func TestReadAnswer(t *testing.T) {
	chain := func(n int) []string {
		records := []string{"example.com. 60 IN CNAME c1.org."}
		for i := 1; i < n; i++ {
			records = append(records, fmt.Sprintf("c%d.org. 60 IN CNAME c%d.org.", i, i+1))
		}
		return append(records, fmt.Sprintf("c%d.org. 60 IN A 192.0.2.1", n))
	}
	const minute = time.Minute
	const longest = "c1.org c2.org c3.org c4.org c5.org c6.org c7.org c8.org c9.org c10.org c11.org c12.org c13.org c14.org c15.org c16.org"
	one := []dnsname.Address{address("192.0.2.1", minute)}
	for _, tt := range []struct {
		name    string
		records []string
		want    []dnsname.Address
		chain   string
	}{
		{"no records", nil, nil, ""},
		{"addresses", []string{"example.com. 60 IN A 192.0.2.1", "EXAMPLE.com. 60 IN AAAA 2001:db8::1"}, append(one[:1:1], address("2001:db8::1", minute)), ""},
		{"mapped address", []string{"example.com. 60 IN AAAA ::ffff:192.0.2.1"}, one, ""},
		{"another name", []string{"www.example.com. 60 IN A 192.0.2.1", "com. 60 IN A 192.0.2.1", ". 60 IN A 192.0.2.1"}, nil, ""},
		{"another class", []string{"example.com. 60 CH A 192.0.2.1"}, nil, ""},
		{"another type", []string{"example.com. 60 IN TXT 1.2.3.4", "example.com. 60 IN SRV 0 0 80 a.org.", "a.org. 60 IN A 192.0.2.1"}, nil, ""},
		{"chain backwards", []string{"b.org. 60 IN A 192.0.2.1", "a.org. 60 IN CNAME b.org.", "example.com. 60 IN CNAME a.org."}, one, "a.org b.org"},
		{"two names by pointers", []string{"example.com. 60 IN CNAME a.org.", "a.org. 60 IN A 192.0.2.1", "org. 60 IN A 192.0.2.66"}, one, "a.org"},
		{"other chain", []string{"a.org. 60 IN CNAME b.org.", "b.org. 60 IN A 192.0.2.1"}, nil, ""},
		{"second alias", []string{"example.com. 60 IN CNAME a.org.", "example.com. 60 IN CNAME b.org.", "b.org. 60 IN A 192.0.2.2", "a.org. 60 IN A 192.0.2.1"}, one, "a.org"},
		{"end of the chain has none", []string{"example.com. 60 IN CNAME a.org."}, nil, "a.org"},
		{"loop", []string{"example.com. 60 IN CNAME a.org.", "a.org. 60 IN CNAME example.com.", "a.org. 60 IN A 192.0.2.1"}, one, "a.org"},
		{"alias of itself", []string{"example.com. 60 IN CNAME Example.com.", "example.com. 60 IN A 192.0.2.1"}, one, ""},
		{"loop behind the first", []string{"example.com. 60 IN CNAME a.org.", "a.org. 60 IN CNAME b.org.", "b.org. 60 IN CNAME a.org."}, nil, "a.org b.org"},
		{"longest chain", chain(maxChain), one, longest},
		{"chain is too long", chain(maxChain + 1), nil, longest},
		{"TTL of the chain", []string{"example.com. 5 IN CNAME a.org.", "a.org. 60 IN A 192.0.2.1", "a.org. 3 IN A 192.0.2.2"}, []dnsname.Address{address("192.0.2.1", 5*time.Second), address("192.0.2.2", 3*time.Second)}, "a.org"},
		{"negative TTL", []string{"example.com. 4294967295 IN A 192.0.2.1"}, []dnsname.Address{address("192.0.2.1", 0)}, ""},
		{"longest TTL", []string{"example.com. 2147483647 IN A 192.0.2.1"}, []dnsname.Address{address("192.0.2.1", 2147483647*time.Second)}, ""},
		{"hints", []string{"example.com. 60 IN HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1,192.0.2.2 ipv6hint=2001:db8::1", "example.com. 5 IN SVCB 2 svc.org. port=53 ipv4hint=192.0.2.3"},
			append(one[:1:1], address("192.0.2.2", minute), address("2001:db8::1", minute), address("192.0.2.3", 5*time.Second)), ""},
		{"hints of an alias", []string{"example.com. 60 IN HTTPS 0 svc.org.", "svc.org. 60 IN HTTPS 1 . ipv4hint=192.0.2.1"}, nil, ""},
		{"hints at the end of a chain", []string{"example.com. 60 IN CNAME a.org.", "a.org. 60 IN HTTPS 1 . ipv4hint=192.0.2.1"}, one, "a.org"},
	} {
		got, ok := read(t, nil, tt.records...)
		want := Answer{Name: "example.com", Chain: strings.Fields(tt.chain), Addresses: tt.want}
		if diff := cmp.Diff(want, got, addrs, cmpopts.EquateEmpty()); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", tt.name, ok, diff)
		}
	}
	got, _ := read(t, func(m *dns.Msg) { m.Compress = false },
		"example.org. 60 IN A 192.0.2.66", "example.com. 60 IN A 192.0.2.1", "example.net. 60 IN A 192.0.2.66")
	if diff := cmp.Diff(one, got.Addresses, addrs); diff != "" {
		t.Errorf("names without compression (-want +got):\n%s", diff)
	}
	got, _ = read(t, func(m *dns.Msg) {
		m.Ns = []dns.RR{record(t, "example.com. 60 IN A 192.0.2.1")}
		m.Extra = m.Ns
	})
	if len(got.Addresses) != 0 {
		t.Errorf("%v was learned of other sections", got.Addresses)
	}
}

// TestReadAnswerDamaged has data that is not of its type, and records that are not where the message says.
func TestReadAnswerDamaged(t *testing.T) {
	data := func(kind uint16, hex string) dns.RR {
		return &dns.RFC3597{Hdr: dns.RR_Header{Name: "example.com.", Rrtype: kind, Class: dns.ClassINET, Ttl: 60}, Rdata: hex}
	}
	for name, rr := range map[string]dns.RR{
		"A of 3 bytes":            data(dns.TypeA, "c00002"),
		"A of 5 bytes":            data(dns.TypeA, "c000020101"),
		"AAAA of 4 bytes":         data(dns.TypeAAAA, "c0000201"),
		"CNAME with more":         data(dns.TypeCNAME, "0161000000"),
		"CNAME cut":               data(dns.TypeCNAME, "0261"),
		"HTTPS empty":             data(dns.TypeHTTPS, ""),
		"HTTPS of 1 byte":         data(dns.TypeHTTPS, "00"),
		"HTTPS without name":      data(dns.TypeHTTPS, "0001"),
		"HTTPS alias with hint":   data(dns.TypeHTTPS, "00000000040004c0000201"),
		"HTTPS with cut hint":     data(dns.TypeHTTPS, "00010000040004c00002"),
		"HTTPS with half a hint":  data(dns.TypeHTTPS, "00010000040003c00002"),
		"HTTPS with cut key":      data(dns.TypeHTTPS, "000100000400"),
		"SVCB with IPv6 of 4":     data(dns.TypeSVCB, "00010000060004c0000201"),
		"SVCB with a cut name":    data(dns.TypeSVCB, "00010561"),
		"SVCB with a wrong label": data(dns.TypeSVCB, "00014061"),
	} {
		got, ok := read(t, func(m *dns.Msg) { m.Answer = []dns.RR{rr, record(t, "example.com. 60 IN A 192.0.2.7")} })
		if !ok || len(got.Chain) != 0 || len(got.Addresses) != 1 || got.Addresses[0] != address("192.0.2.7", time.Minute) {
			t.Errorf("%s: %+v, %t, want what the other record has", name, got, ok)
		}
	}

	good := pack(t, func() *dns.Msg {
		m := new(dns.Msg).SetReply(query("example.com.", dns.TypeA))
		m.Answer = []dns.RR{record(t, "example.com. 60 IN A 192.0.2.1")}
		return m
	}())
	q, _ := readQuestion(pack(t, query("example.com.", dns.TypeA)))
	for size := q.end; size < len(good); size++ {
		if _, ok := readAnswer(good[:size], q); ok {
			t.Errorf("an answer of %d bytes was cut to %d, and was read", len(good), size)
		}
	}
	good[7]++
	if _, ok := readAnswer(good, q); ok {
		t.Error("an answer with fewer records than it says was read")
	}
}

// BenchmarkReadAnswer reads the longest chain to as many addresses as a message has room for, all with long names.
func BenchmarkReadAnswer(b *testing.B) {
	q := pack(b, query("example.com.", dns.TypeA))
	parsed, _ := readQuestion(q)
	for name, samePointers := range map[string]bool{"one pointer": true, "two pointers": false} {
		m := append([]byte(nil), q...)
		m[2] |= bitResponse >> 8
		owner, records := []byte{0xc0, headerSize}, uint16(0)
		add := func(owner []byte, kind byte, data string) (at int) {
			m = append(append(m, owner...), 0, kind, 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
			records++
			at = len(m)
			m = append(m, data...)
			return at
		}
		var at int
		for i := range maxChain {
			at = add(owner, typeCNAME, fmt.Sprintf("\x02%02d", i)+strings.Repeat("\x01\x00", 60)+"\x00")
			owner = []byte{0xc0 | byte(at>>8), byte(at)}
		}
		at += 3
		other := []byte{0xc0 | byte(at>>8), byte(at)}
		for len(m)+32 <= 1<<16 {
			add(owner, typeA, "\xc0\x00\x02\x01")
			if samePointers {
				add(owner, typeA, "\xc0\x00\x02\x02")
			} else {
				add(other, typeA, "\xc0\x00\x02\x02")
			}
		}
		binary.BigEndian.PutUint16(m[6:], records)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if a, ok := readAnswer(m, parsed); !ok || len(a.Addresses) < 1000 {
					b.Fatalf("%d addresses, %t", len(a.Addresses), ok)
				}
			}
		})
	}
}
