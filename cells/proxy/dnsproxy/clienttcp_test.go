package dnsproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// serve accepts connections of clients, and datagrams, until the test ends.
func (p *proxy) serve(t testing.TB) server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				p.ServeTCP(ctx, context.Background(), conn, Query{Endpoint: 7, Client: netip.MustParseAddrPort(conn.RemoteAddr().String())})
			})
		}
	})
	running.Go(func() {
		buffer := make([]byte, maxQuery)
		for {
			n, from, err := packets.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			p.HandleQuery(ctx, Query{Endpoint: 7, Client: from, Message: buffer[:n]}, func(r []byte) {
				if r != nil {
					_, _ = packets.WriteToUDPAddrPort(r, from)
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		packets.Close()
		running.Wait()
		p.Wait()
	})
	return server{udp: packets.LocalAddr().(*net.UDPAddr).AddrPort(), tcp: netip.MustParseAddrPort(listener.Addr().String())}
}

// TestServeClients has real clients ask over both, at once.
func TestServeClients(t *testing.T) {
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		answer(t, m.Question[0].Name+" 60 IN A 192.0.2.1")(w, m)
	})
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	front := p.serve(t)
	var clients sync.WaitGroup
	for i := range 20 {
		for network, addr := range map[string]netip.AddrPort{"udp": front.udp, "tcp": front.tcp} {
			clients.Go(func() {
				c := dns.Client{Net: network, Timeout: 10 * time.Second}
				for j := range 10 {
					name := fmt.Sprintf("N%d-%d.example.com.", i, j)
					r, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), addr.String())
					if err != nil || len(r.Answer) != 1 || r.Answer[0].Header().Name != name {
						t.Errorf("%s over %s: %v, %v; outcomes %v", name, network, r, err, p.counts())
					}
					r, _, err = c.Exchange(new(dns.Msg).SetQuestion("example.net.", dns.TypeA), addr.String())
					if err != nil || r.Rcode != dns.RcodeNameError {
						t.Errorf("over %s: %v, %v, want NXDOMAIN", network, r, err)
					}
				}
			})
		}
	}
	clients.Wait()
	if got, want := p.counts(), (map[Outcome]int{Answered: 400, Policy: 400}); !maps.Equal(got, want) {
		t.Errorf("outcomes are %v, want %v", got, want)
	}
}

// TestServeResolver has the resolver of Go ask, which tries the names of its search list and needs both kinds of
// addresses.
func TestServeResolver(t *testing.T) {
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		if m.Question[0].Qtype == dns.TypeAAAA {
			answer(t)(w, m)
			return
		}
		answer(t, m.Question[0].Name+" 60 IN CNAME a.cdn.net.", "a.cdn.net. 60 IN A 192.0.2.1")(w, m)
	})
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	front := p.serve(t)
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr := front.udp
		if strings.HasPrefix(network, "tcp") {
			addr = front.tcp
		}
		return new(net.Dialer).DialContext(ctx, network, addr.String())
	}}
	got, err := r.LookupHost(t.Context(), "www.example.com.")
	if err != nil || len(got) != 1 || got[0] != "192.0.2.1" {
		t.Errorf("the resolver has %v, %v, want 192.0.2.1", got, err)
	}
	if _, err := r.LookupHost(t.Context(), "www.example.net."); err == nil {
		t.Error("a name that is refused was resolved")
	}
}

// TestServeTCPOutOfOrder sends two queries at once, the first is answered after the second.
func TestServeTCPOutOfOrder(t *testing.T) {
	second := make(chan struct{})
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		if strings.HasPrefix(m.Question[0].Name, "slow") {
			<-second
		}
		answer(t)(w, m)
	})
	front := newProxy(t, func(c *Config) { c.Dial = s.dial }).serve(t)
	conn, err := net.Dial("tcp", front.tcp.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var both []byte
	for id, name := range []string{"slow.example.com.", "fast.example.com."} {
		m := query(name, dns.TypeA)
		m.Id = uint16(id)
		raw := pack(t, m)
		both = append(binary.BigEndian.AppendUint16(both, uint16(len(raw))), raw...)
	}
	if _, err := conn.Write(both); err != nil {
		t.Fatal(err)
	}
	c := dns.Conn{Conn: conn}
	for _, want := range []uint16{1, 0} {
		m, err := c.ReadMsg()
		if err != nil || m.Id != want {
			t.Fatalf("reply %v, %v, want the one with ID %d", m, err, want)
		}
		if want == 1 {
			close(second)
		}
	}
}

// TestServeTCPMany asks more on one connection than may be in flight, one query after the other.
func TestServeTCPMany(t *testing.T) {
	s := newServer(t, answer(t))
	front := newProxy(t, func(c *Config) {
		c.Dial = s.dial
		c.Limits.Pipelined = 2
	}).serve(t)
	conn, err := dns.DialTimeout("tcp", front.tcp.String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	for i := range 10 {
		for name, code := range map[string]int{"example.com.": dns.RcodeSuccess, "example.net.": dns.RcodeNameError} {
			if err := conn.WriteMsg(query(name, dns.TypeA)); err != nil {
				t.Fatal(err)
			}
			if m, err := conn.ReadMsg(); err != nil || m.Rcode != code {
				t.Fatalf("query %d for %s: %v, %v, want code %d", i, name, m, err, code)
			}
		}
	}
}

// stream is the client's end of a connection that a handler serves.
func (p *proxy) stream(t *testing.T, ctx context.Context) (conn net.Conn, ended <-chan struct{}) {
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeTCP(ctx, context.Background(), server, Query{Endpoint: 7})
	}()
	t.Cleanup(func() { client.Close(); <-done })
	return client, done
}

// TestServeTCPEnds has connections that end, each for another reason.
func TestServeTCPEnds(t *testing.T) {
	framed := func(m []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...) }
	refused := framed(pack(t, query("example.net.", dns.TypeA)))
	forwarded := framed(pack(t, query("example.com.", dns.TypeA)))
	for _, tt := range []struct {
		name string
		send []byte
		then func(conn net.Conn, cancel func())
		want time.Duration
	}{
		{"idle", nil, nil, 10 * time.Second},
		{"half a length", []byte{0}, nil, 10 * time.Second},
		{"half a query", refused[:10], nil, 10 * time.Second},
		{"length 0", []byte{0, 0}, nil, 0},
		{"length too large", []byte{0xff, 0xff}, nil, 0},
		{"client leaves", nil, func(conn net.Conn, _ func()) { conn.Close() }, 0},
		{"client leaves while a query is in flight", forwarded, func(conn net.Conn, _ func()) { conn.Close() }, 4500 * time.Millisecond},
		{"client reads no reply", refused, nil, writeTimeout},
		{"stop", nil, func(_ net.Conn, cancel func()) { cancel() }, 0},
		{"stop while a query is in flight", forwarded, func(_ net.Conn, cancel func()) { cancel() }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &pipes{}
			p := newProxy(t, func(c *Config) { c.Dial, c.Limits = s.dial, DefaultLimits() })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			conn, ended := p.stream(t, ctx)
			begin := time.Now()
			if _, err := conn.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if tt.then != nil {
				tt.then(conn, cancel)
			}
			<-ended
			if got := time.Since(begin); got != tt.want {
				t.Errorf("%s: the connection ended after %s, want %s", tt.name, got, tt.want)
			}
			s.servers.Wait()
			if p.streams.quota.Used() != 0 {
				t.Errorf("%s: the connection still counts", tt.name)
			}
		})
	}
}

// TestServeTCPLimits has more queries than one connection may have in flight, and more connections than there may be.
func TestServeTCPLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pipes{}
		p := newProxy(t, func(c *Config) {
			c.Dial = s.dial
			c.Limits.Pipelined, c.Limits.ConnectionsPerEndpoint = 2, 2
		})
		conn, _ := p.stream(t, t.Context())
		var sent sync.WaitGroup
		sent.Go(func() {
			for i := range 3 {
				m := query(fmt.Sprintf("n%d.example.com.", i), dns.TypeA)
				if err := writeStream(conn, pack(t, m)); err != nil {
					t.Error(err)
				}
			}
		})
		synctest.Wait()
		if s.dialed() != 2 {
			t.Errorf("%d queries of one connection are in flight, want 2", s.dialed())
		}
		idle, _ := p.stream(t, t.Context())
		synctest.Wait()
		refused, ended := p.stream(t, t.Context())
		<-ended
		if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection too many: %v, want it closed", err)
		}
		p.expectOutcomes(t, Connections)
		idle.Close()
		synctest.Wait()
		p.streams.mu.Lock()
		if p.streams.quota.Used() != 1 {
			t.Errorf("%d connections count, want 1", p.streams.quota.Used())
		}
		p.streams.mu.Unlock()
		reader := dns.Conn{Conn: conn}
		for range 3 {
			if m, err := reader.ReadMsg(); err != nil || m.Rcode != dns.RcodeServerFailure {
				t.Errorf("reply %v, %v, want SERVFAIL", m, err)
			}
		}
		sent.Wait()
		if s.dialed() != 3 {
			t.Errorf("%d queries were forwarded, want all 3", s.dialed())
		}
		conn.Close()
		s.servers.Wait()
	})
}

// TestServeTCPDrain: a connection that drains answers what comes at once, and is closed then.
func TestServeTCPDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, func(*Config) {})
		draining, drain := context.WithCancel(t.Context())
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.ServeTCP(t.Context(), draining, server, Query{Endpoint: 7})
		}()
		drain()
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		if err := writeStream(client, pack(t, query("example.net.", dns.TypeA))); err != nil {
			t.Fatal(err)
		}
		if _, err := (&dns.Conn{Conn: client}).ReadMsg(); err != nil {
			t.Errorf("a query that comes at once: %v", err)
		}
		began := time.Now()
		<-done
		if took := time.Since(began); took != drainIdle {
			t.Errorf("the connection was closed after %v, want %v", took, drainIdle)
		}
	})
}
