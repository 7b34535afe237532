package dnsproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/dnsname"
)

var addrs = cmpopts.EquateComparable(dnsname.Address{}.Addr)

func TestHandleAnswer(t *testing.T) {
	s := newServer(t, answer(t,
		"Www.Example.com. 300 IN CNAME a.cdn.net.",
		"a.cdn.net. 20 IN CNAME b.cdn.net.",
		"b.cdn.net. 60 IN A 192.0.2.1",
		"b.cdn.net. 10 IN A 192.0.2.2",
		"other.example.com. 60 IN A 192.0.2.66",
	))
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	r := p.ask(t, query("Www.Example.com.", dns.TypeA))
	if r.Id != 0x1234 || r.Rcode != dns.RcodeSuccess || len(r.Answer) != 5 {
		t.Errorf("the pod got %v, want the answer of the server with the ID of the pod", r)
	}
	want := []Answer{{
		Endpoint: 7, Name: "www.example.com", Chain: []string{"a.cdn.net", "b.cdn.net"},
		Addresses: []dnsname.Address{address("192.0.2.1", 20*time.Second), address("192.0.2.2", 10*time.Second)},
	}}
	if diff := cmp.Diff(want, p.learned(), addrs); diff != "" {
		t.Errorf("what was learned (-want +got):\n%s", diff)
	}
	rec := p.lastRecord(t)
	if rec.Outcome != Answered || rec.Name != "www.example.com" || rec.Type != dns.TypeA || rec.Endpoint != 7 {
		t.Errorf("the record is %+v", rec)
	}
}

// TestHandleForwardsOriginal compares what the server gets with what the pod has sent.
func TestHandleForwardsOriginal(t *testing.T) {
	var mu sync.Mutex
	var got []*dns.Msg
	ports := map[string]bool{}
	s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
		mu.Lock()
		got = append(got, m.Copy())
		ports[w.RemoteAddr().String()] = true
		mu.Unlock()
		answer(t)(w, m)
	})
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	q := query("wWw.eXample.COM.", dns.TypeAAAA)
	q.CheckingDisabled, q.AuthenticatedData = true, true
	q.SetEdns0(1400, true)
	q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}}
	const n = 20
	for range n {
		p.ask(t, q)
	}
	mu.Lock()
	defer mu.Unlock()
	ids := map[uint16]bool{}
	for _, m := range got {
		ids[m.Id] = true
		m.Id = q.Id
		if diff := cmp.Diff(pack(t, q), pack(t, m)); diff != "" {
			t.Fatalf("the server got another message (-want +got):\n%s", diff)
		}
	}
	if len(got) != n || len(ids) < n-1 || len(ports) < n-1 {
		t.Errorf("%d queries with %d IDs from %d ports, want %d of each", len(got), len(ids), len(ports), n)
	}
}

// TestHandleAnswerCase has a server that writes the name as it likes. A query with capitals wants them back, as they
// may be there against forged answers.
func TestHandleAnswerCase(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		for asked, want := range map[string]int{"www.example.com.": dns.RcodeSuccess, "www.Example.com.": dns.RcodeServerFailure} {
			s := newServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
				q.Question[0].Name = "WWW.EXAMPLE.com."
				answer(t, "www.example.com. 60 IN A 192.0.2.1")(w, q)
			})
			p := newProxy(t, func(c *Config) { c.Dial, c.Limits.Timeout = s.dial, 200*time.Millisecond })
			q := Query{Endpoint: 7, Client: podAddress, Server: serverAddress, TCP: tcp, Message: pack(t, query(asked, dns.TypeA))}
			if r := unpack(t, p.Handle(t.Context(), q)); r.Rcode != want {
				t.Errorf("TCP %v, %s: code %d, want %d", tcp, asked, r.Rcode, want)
			}
			if n := len(p.learned()); (n == 1) != (want == dns.RcodeSuccess) {
				t.Errorf("TCP %v, %s: %d answers were learned", tcp, asked, n)
			}
		}
	}
}

// TestHandleIgnoresOtherAnswers has a server send what does not match before it answers, and answer with what does not
// match only.
func TestHandleIgnoresOtherAnswers(t *testing.T) {
	wrong := []func(*dns.Msg){
		func(m *dns.Msg) { m.Id++ },
		func(m *dns.Msg) { m.Question[0].Name = "www.example.net." },
		func(m *dns.Msg) { m.Question[0].Name = "www.example.com." },
		func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		func(m *dns.Msg) { m.Question = nil },
		func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		func(m *dns.Msg) { m.Response = false },
		func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
	}
	for _, right := range []bool{true, false} {
		s := newServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
			for _, change := range wrong {
				m := new(dns.Msg).SetReply(q)
				m.Answer = []dns.RR{record(t, "www.example.com. 60 IN A 192.0.2.66")}
				change(m)
				_ = w.WriteMsg(m)
			}
			_, _ = w.Write([]byte("no message"))
			if right {
				answer(t, "www.example.com. 60 IN A 192.0.2.1")(w, q)
			}
		})
		for _, tcp := range []bool{false, true} {
			p := newProxy(t, func(c *Config) {
				c.Dial = s.dial
				if !right {
					c.Limits.Timeout = 300 * time.Millisecond
				}
			})
			m := query("www.Example.com.", dns.TypeA)
			r := unpack(t, p.Handle(t.Context(), Query{Endpoint: 7, Client: podAddress, Server: serverAddress, TCP: tcp, Message: pack(t, m)}))
			rec := p.lastRecord(t)
			if right && (len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != "192.0.2.1" || len(p.learned()) != 1) {
				t.Errorf("tcp %t: the pod got %v, want the right answer", tcp, r)
			}
			if !right && (r.Rcode != dns.RcodeServerFailure || rec.Outcome != Timeout || len(p.learned()) != 0) {
				t.Errorf("tcp %t: the pod got %v after %s, want a timeout", tcp, r, rec.Outcome)
			}
		}
	}
}

func TestHandleUnreachable(t *testing.T) {
	s := newServer(t, answer(t))
	for name, dial := range map[string]func(context.Context, Query) (net.Conn, error){
		"no connection": func(context.Context, Query) (net.Conn, error) { return nil, errors.New("no route to host") },
		"not sent": func(context.Context, Query) (net.Conn, error) {
			closed, _ := net.Pipe()
			return closed, closed.Close()
		},
	} {
		p := newProxy(t, func(c *Config) { c.Dial = dial })
		if r := p.ask(t, query("example.com.", dns.TypeA)); r.Rcode != dns.RcodeServerFailure {
			t.Errorf("%s: the pod got %v, want SERVFAIL", name, r)
		}
		p.expectOutcomes(t, Unreachable)
		p.config.Dial = s.dial
		if r := p.ask(t, query("example.com.", dns.TypeA)); r.Rcode != dns.RcodeSuccess {
			t.Errorf("%s: then the pod got %v, want an answer", name, r)
		}
	}
}

func TestHandleErrorsOfServerPass(t *testing.T) {
	for _, code := range []int{dns.RcodeNameError, dns.RcodeRefused, dns.RcodeServerFailure, dns.RcodeSuccess} {
		s := newServer(t, func(w dns.ResponseWriter, m *dns.Msg) {
			r := new(dns.Msg).SetRcode(m, code)
			r.Ns = []dns.RR{record(t, "example.com. 60 IN SOA a. b. 1 2 3 4 5")}
			if code != 0 {
				r.Answer = []dns.RR{record(t, "example.com. 60 IN A 192.0.2.1")}
			}
			_ = w.WriteMsg(r)
		})
		p := newProxy(t, func(c *Config) { c.Dial = s.dial })
		if r := p.ask(t, query("example.com.", dns.TypeA)); r.Rcode != code || len(r.Ns) != 1 {
			t.Errorf("the pod got %v, want code %d with its authority section", r, code)
		}
		p.expectOutcomes(t, Answered)
		if got := p.learned(); got != nil {
			t.Errorf("code %d: %v was learned, want nothing", code, got)
		}
	}
}

// TestHandleLearn has Learn fail, and be late.
func TestHandleLearn(t *testing.T) {
	q := query("example.com.", dns.TypeA)
	raw := answerBytes(t, q, "example.com. 60 IN A 192.0.2.1")
	limit, errFull := DefaultLimits().Timeout, errors.New("map is full")
	later := func(wait func(context.Context) error) func() (func(context.Context) error, error) {
		return func() (func(context.Context) error, error) { return wait, nil }
	}
	for _, tt := range []struct {
		name     string
		learn    func() (func(context.Context) error, error)
		want     Outcome
		duration time.Duration
	}{
		{"fails", func() (func(context.Context) error, error) { return nil, errFull }, LearnFailed, 0},
		{"fails later", later(func(context.Context) error { time.Sleep(time.Millisecond); return errFull }), LearnFailed, time.Millisecond},
		{"in force later", later(func(context.Context) error { time.Sleep(time.Millisecond); return nil }), Answered, time.Millisecond},
		{"late", later(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), LearnLate, limit},
		{"in time, seen late", later(func(ctx context.Context) error { <-ctx.Done(); return nil }), Answered, limit},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProxy(t, func(c *Config) {
				c.Open = instant{raw}.open
				c.Learn, c.Limits = func(Answer) (func(context.Context) error, error) { return tt.learn() }, DefaultLimits()
			})
			if r := p.ask(t, q); (r.Rcode == dns.RcodeServerFailure && len(r.Answer) == 0) != (tt.want != Answered) {
				t.Errorf("%s: the pod got %v after %s", tt.name, r, tt.want)
			}
			if rec := p.lastRecord(t); rec.Outcome != tt.want || rec.Duration != tt.duration {
				t.Errorf("%s: %s after %s, want %s after %s", tt.name, rec.Outcome, rec.Duration, tt.want, tt.duration)
			}
		})
	}
}

// TestHandleLearnSlowServer: the time of the server counts, so that the reply comes before a resolver gives up.
func TestHandleLearnSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := query("example.com.", dns.TypeA)
		server := instant{answerBytes(t, q, "example.com. 60 IN A 192.0.2.1")}
		p := newProxy(t, func(c *Config) {
			c.Limits = DefaultLimits()
			c.Open = func(q Query, receive func([]byte)) (Socket, error) {
				return server.open(q, func(m []byte) {
					time.Sleep(time.Second)
					receive(m)
				})
			}
			c.Learn = func(Answer) (func(context.Context) error, error) {
				return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
			}
		})
		p.ask(t, q)
		if rec := p.lastRecord(t); rec.Outcome != LearnLate || rec.Duration != DefaultLimits().Timeout {
			t.Errorf("%s after %s, want %s after %s", rec.Outcome, rec.Duration, LearnLate, DefaultLimits().Timeout)
		}
	})
}

// TestHandleLearnLimit: as many answers of an endpoint wait as it may have queries, and the next query fails at once.
// Another endpoint's does not.
func TestHandleLearnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := query("example.com.", dns.TypeA)
		server := instant{answerBytes(t, q, "example.com. 60 IN A 192.0.2.1")}
		p := newProxy(t, func(c *Config) {
			c.Limits = DefaultLimits()
			c.Open = server.open
			c.Learn = func(a Answer) (func(context.Context) error, error) {
				if a.Endpoint == 2 {
					return nil, nil
				}
				return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
			}
		})
		ask := func(endpoint, id uint16) {
			q.Id = id
			p.HandleQuery(t.Context(), Query{Endpoint: endpoint, Message: pack(t, q)}, func([]byte) {})
		}
		for id := range uint16(257) {
			ask(1, id)
			synctest.Wait()
		}
		ask(2, 1)
		synctest.Wait()
		if n := p.counts(); n[EndpointLimit] != 1 || n[Answered] != 1 || len(n) != 2 {
			t.Errorf("outcomes %v at once, want one query over the limit, and the other endpoint's answered", n)
		}
		time.Sleep(DefaultLimits().Timeout)
		p.Wait()
		if n := p.counts(); n[LearnLate] != 256 {
			t.Errorf("outcomes %v, want 256 that are late", n)
		}
	})
}

// TestHandleLearnCanceled has the caller leave while Learn is in flight.
func TestHandleLearnCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := query("example.com.", dns.TypeA)
		raw := answerBytes(t, q, "example.com. 60 IN A 192.0.2.1")
		p := newProxy(t, func(c *Config) {
			c.Open = instant{raw}.open
			c.Learn = func(Answer) (func(context.Context) error, error) {
				return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		p.Handle(ctx, Query{Message: pack(t, q)})
		p.expectOutcomes(t, Canceled)
	})
}

// TestHandleLearnsBeforeReply: a client that has its answer finds the addresses learned.
func TestHandleLearnsBeforeReply(t *testing.T) {
	s := newServer(t, answer(t, "example.com. 60 IN AAAA 2001:db8::1"))
	p := newProxy(t, func(c *Config) { c.Dial = s.dial })
	learned := make(chan int, 1)
	q := Query{Endpoint: 7, Client: podAddress, Server: serverAddress, Message: pack(t, query("example.com.", dns.TypeAAAA))}
	p.HandleQuery(t.Context(), q, func([]byte) { learned <- len(p.learned()) })
	if n := <-learned; n != 1 {
		t.Errorf("%d answers were learned when the pod got its own, want 1", n)
	}
}

// TestHandleRulesChange changes the rules while the query is on its way, as when the pod goes: nothing is learned for
// the next pod with its ID.
func TestHandleRulesChange(t *testing.T) {
	s := newServer(t, answer(t, "example.com. 60 IN A 192.0.2.1"))
	asked := 0
	p := newProxy(t, func(c *Config) {
		c.Dial = s.dial
		c.Allows = func(Query, string) bool { asked++; return asked == 1 }
	})
	r := p.ask(t, query("example.com.", dns.TypeA))
	if r.Rcode != dns.RcodeNameError || len(r.Answer) > 0 {
		t.Errorf("the pod has got %v", r)
	}
	p.expectOutcomes(t, Policy)
	if all := p.learned(); len(all) > 0 {
		t.Errorf("%v was learned", all)
	}
}
