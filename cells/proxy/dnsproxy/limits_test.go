package dnsproxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// pipes is a server at the other end of pipes, for tests with a clock of their own. It answers a query when it has
// come as often as answerAt says; 0: never.
type pipes struct {
	answerAt int
	servers  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	times []time.Duration
	dials int
}

func (p *pipes) dial(context.Context, Query) (net.Conn, error) {
	begin := time.Now()
	client, server := net.Pipe()
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	p.servers.Go(func() {
		defer server.Close()
		buffer := make([]byte, maxQuery)
		for i := 1; ; i++ {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.times = append(p.times, time.Since(begin))
			p.mu.Unlock()
			if i == p.answerAt {
				buffer[2] |= bitResponse >> 8
				_, _ = server.Write(buffer[:n])
			}
		}
	})
	return client, nil
}

// dialed returns how many connections there were.
func (p *pipes) dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func TestHandleTimeout(t *testing.T) {
	for _, tt := range []struct {
		answerAt int
		outcome  Outcome
		code     int
		duration time.Duration
	}{
		{1, Answered, dns.RcodeSuccess, 0},
		{0, Timeout, dns.RcodeServerFailure, 4500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &pipes{answerAt: tt.answerAt}
			p := newProxy(t, func(c *Config) { c.Dial, c.Limits = s.dial, DefaultLimits() })
			q := query("example.com.", dns.TypeA)
			q.SetEdns0(1232, false)
			r := p.ask(t, q)
			rec := p.lastRecord(t)
			if r.Rcode != tt.code || r.Id != q.Id || rec.Outcome != tt.outcome || rec.Duration != tt.duration {
				t.Errorf("the pod got %v after %s, %s; want code %d after %s", r, rec.Duration, rec.Outcome, tt.code, tt.duration)
			}
			if tt.outcome == Timeout && r.IsEdns0().Option[0].(*dns.EDNS0_EDE).InfoCode != dns.ExtendedErrorCodeNoReachableAuthority {
				t.Errorf("the OPT record is %v, want the reason in it", r.IsEdns0())
			}
			s.servers.Wait()
			if want := []time.Duration{0}; !slices.Equal(s.times, want) {
				t.Errorf("the server was asked after %v, want %v", s.times, want)
			}
		})
	}
}

func TestHandleCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pipes{}
		p := newProxy(t, func(c *Config) { c.Dial = s.dial })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.Handle(ctx, Query{Message: pack(t, query("example.com.", dns.TypeA))})
		if rec := p.lastRecord(t); rec.Outcome != Canceled || rec.Duration != time.Second {
			t.Errorf("%s after %s, want it canceled after 1 s", rec.Outcome, rec.Duration)
		}
		s.servers.Wait()
	})
}

// TestHandleRepeated sends a query again while it is in flight: it is forwarded again.
func TestHandleRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pipes{}
		p := newProxy(t, func(c *Config) { c.Dial, c.Limits = s.dial, DefaultLimits() })
		q := Query{Endpoint: 7, Client: podAddress, Server: serverAddress, Message: pack(t, query("example.com.", dns.TypeA))}
		var replies atomic.Int32
		for range 2 {
			p.HandleQuery(t.Context(), q, func([]byte) { replies.Add(1) })
			time.Sleep(time.Second)
		}
		p.Wait()
		s.servers.Wait()
		if s.dialed() != 2 || replies.Load() != 2 {
			t.Errorf("%d queries were forwarded and %d replies sent, want two of each", s.dialed(), replies.Load())
		}
	})
}

func TestHandleLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pipes{}
		p := newProxy(t, func(c *Config) {
			c.Dial = s.dial
			c.Limits.QueriesPerEndpoint, c.Limits.Queries = 3, 7
		})
		var mu sync.Mutex
		codes := map[int]int{}
		flood := func(endpoint uint16, n int) {
			for i := range n {
				m := query(fmt.Sprintf("n%d.example.com.", i), dns.TypeA)
				p.HandleQuery(t.Context(), Query{Endpoint: endpoint, Message: pack(t, m)}, func(r []byte) {
					mu.Lock()
					defer mu.Unlock()
					codes[int(r[3]&maskCode)]++
				})
			}
		}
		replies := func(code int) int {
			mu.Lock()
			defer mu.Unlock()
			return codes[code]
		}
		flood(1, 10)
		flood(2, 10)
		synctest.Wait()
		count := p.counts()
		if s.dialed() != 5 || count[EndpointLimit] != 7 || count[TotalLimit] != 8 || replies(codeServer) != 15 {
			t.Errorf("%d queries were forwarded, outcomes %v, %d SERVFAIL; want 5, and 7 and 8 refused with SERVFAIL", s.dialed(), count, replies(codeServer))
		}
		flood(3, 1)
		synctest.Wait()
		if s.dialed() != 6 {
			t.Error("two endpoints have left none for a third one")
		}
		p.Wait()
		s.servers.Wait()
		s.answerAt = 1
		flood(1, 3)
		p.Wait()
		s.servers.Wait()
		if replies(0) != 3 || p.queries.quota.Used() != 0 {
			t.Errorf("%d were answered, want 3, and %d queries still count", replies(0), p.queries.quota.Used())
		}
	})
}

func TestNewRefusesLimits(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("limits of 0 were accepted")
	}
}

// TestHandleTruncation has answers that say that they are cut, that are larger than the client receives, and that are
// cut within a record.
func TestHandleTruncation(t *testing.T) {
	var cut atomic.Int32
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		for i := range 60 {
			r.Answer = append(r.Answer, record(t, fmt.Sprintf("example.com. 60 IN A 192.0.2.%d", i)))
		}
		r.Truncated = cut.Load() != 0
		raw := pack(t, r)
		if n := cut.Load(); n > 0 {
			raw = raw[:n]
		}
		_, _ = w.Write(raw)
	})
	for _, tt := range []struct {
		name    string
		udp     uint16
		cut     int32
		records int
		tc      bool
	}{
		{"fits", 4096, 0, 60, false},
		{"fits a client that receives more than the proxy", 65535, 0, 60, false},
		{"larger than without EDNS", 0, 0, 0, true},
		{"larger than EDNS says", 1400, 0, 0, true},
		{"EDNS says less than 512", 100, 0, 0, true},
		{"says that it is cut", 4096, -1, 60, true},
		{"cut within a record", 4096, 100, 0, true},
	} {
		cut.Store(tt.cut)
		p := newProxy(t, func(c *Config) { c.Dial = s.dial })
		q := query("example.com.", dns.TypeA)
		if tt.udp > 0 {
			q.SetEdns0(tt.udp, false)
		}
		r := p.ask(t, q)
		if len(r.Answer) != tt.records || r.Truncated != tt.tc || r.Rcode != 0 || r.Id != q.Id || len(r.Question) != 1 {
			t.Errorf("%s: the pod got %d records, truncated %t; want %d, %t", tt.name, len(r.Answer), r.Truncated, tt.records, tt.tc)
		}
		learned := 0
		for _, a := range p.learned() {
			learned += len(a.Addresses)
		}
		if got := p.lastRecord(t); got.Outcome != Answered || learned != tt.records {
			t.Errorf("%s: %d addresses were learned, outcome %s; want %d", tt.name, learned, got.Outcome, tt.records)
		}
	}
}

// TestHandleBadAnswer answers with records that cannot be read.
func TestHandleBadAnswer(t *testing.T) {
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		r.Answer = []dns.RR{record(t, "example.com. 60 IN A 192.0.2.1")}
		raw := pack(t, r)
		_, _ = w.Write(raw[:len(raw)-1])
	})
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	if r := p.ask(t, query("example.com.", dns.TypeA)); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("the pod got %v, want SERVFAIL", r)
	}
	p.expectOutcomes(t, BadAnswer)
}
