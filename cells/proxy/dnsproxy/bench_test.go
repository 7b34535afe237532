package dnsproxy

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
)

// BenchmarkHandle is the time of the handler alone: the server answers at once.
func BenchmarkHandle(b *testing.B) {
	q := query("www.example.com.", dns.TypeA)
	q.SetEdns0(1232, false)
	plain := answerBytes(b, q, "www.example.com. 60 IN TXT a")
	addresses := answerBytes(b, q, "www.example.com. 60 IN CNAME a.cdn.net.", "a.cdn.net. 60 IN A 192.0.2.1", "a.cdn.net. 60 IN A 192.0.2.2")
	for _, bb := range []struct {
		name   string
		query  *dns.Msg
		answer []byte
	}{
		{"refused", query("www.example.net.", dns.TypeA), nil},
		{"no addresses", q, plain},
		{"addresses", q, addresses},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := newProxy(b, func(c *Config) {
				c.Open = instant{bb.answer}.open
				c.Learn = func(Answer) (func(context.Context) error, error) { return nil, nil }
				c.Record = func(Record) {}
			})
			m := Query{Endpoint: 7, Client: podAddress, Server: serverAddress, Message: pack(b, bb.query)}
			b.ReportAllocs()
			for b.Loop() {
				if p.Handle(b.Context(), m) == nil {
					b.Fatal("no reply")
				}
			}
		})
	}
}

// BenchmarkLoopback is the time of a query over UDP, straight to a server, and by a proxy whose policy follows the
// names at once. The difference is what the proxy adds.
func BenchmarkLoopback(b *testing.B) {
	packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		b.Fatal(err)
	}
	raw := pack(b, query("www.example.com.", dns.TypeA))
	done := make(chan struct{})
	defer func() { packets.Close(); <-done }()
	var newAddress bool
	go func() {
		defer close(done)
		answer := answerBytes(b, query("www.example.com.", dns.TypeA), "www.example.com. 60 IN A 10.0.0.0")
		buffer := make([]byte, maxQuery)
		for i := uint32(0); ; i++ {
			_, from, err := packets.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			copy(answer, buffer[:2])
			if newAddress {
				copy(answer[len(answer)-3:], []byte{byte(i >> 16), byte(i >> 8), byte(i)})
			}
			_, _ = packets.WriteToUDPAddrPort(answer, from)
		}
	}()
	ask := func(b *testing.B, to netip.AddrPort) {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		buffer := make([]byte, maxUDP)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := conn.Write(raw); err != nil {
				b.Fatal(err)
			}
			if n, err := conn.Read(buffer); err != nil || buffer[3]&maskCode != 0 {
				b.Fatal(buffer[:n], err)
			}
		}
	}
	s := server{udp: packets.LocalAddr().(*net.UDPAddr).AddrPort()}
	b.Run("direct", func(b *testing.B) { ask(b, s.udp) })
	for _, fresh := range []bool{false, true} {
		b.Run(map[bool]string{false: "known name", true: "new address"}[fresh], func(b *testing.B) {
			newAddress = fresh
			ask(b, newFollowed(b, s).serve(b).udp)
			newAddress = false
		})
	}
}

// newFollowed returns a proxy that learns names, and a policy that follows them without writing anything.
func newFollowed(b *testing.B, s server) *proxy {
	c := names.DefaultConfig()
	c.InUse = func(map[names.Use]bool) {}
	c.Protected = func(netip.Addr) bool { return false }
	known := names.New(c)
	known.Select(compile(b, model.DNSRule{Pattern: "*.example.com"}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-known.Changed():
				_, revision := known.Take()
				known.Confirm(revision)
			case <-ctx.Done():
				return
			}
		}
	}()
	b.Cleanup(func() { cancel(); <-done })
	return newProxy(b, func(c *Config) {
		c.Dial, c.Record, c.Learn = s.dial, func(Record) {}, follow(known)
	})
}
