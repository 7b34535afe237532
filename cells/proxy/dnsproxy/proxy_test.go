package dnsproxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
)

var (
	podAddress    = netip.MustParseAddrPort("10.1.0.7:40000")
	serverAddress = netip.MustParseAddrPort("10.96.0.10:53")
)

// proxy is a handler whose functions a test replaces, with what it has learned and recorded.
type proxy struct {
	*Handler

	reading sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	answers []Answer
	records []Record
}

// patient returns limits for tests on real servers: a busy machine may stop all of them for a while.
func patient() Limits {
	l := DefaultLimits()
	l.Timeout = time.Minute
	return l
}

// newProxy returns a handler whose rules match what ends with example.com, and that learns everything. Its limits are
// patient.
func newProxy(t testing.TB, change func(*Config)) *proxy {
	t.Helper()
	p := &proxy{}
	rules := compile(t, model.DNSRule{Pattern: "**.example.com"}, model.DNSRule{Name: "example.com"})
	c := Config{
		Allows: func(_ Query, name string) bool { return rules.Match(name) },
		Dial: func(context.Context, Query) (net.Conn, error) {
			t.Error("a query was forwarded, want none")
			return nil, net.ErrClosed
		},
		Learn: func(a Answer) (func(context.Context) error, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answers = append(p.answers, a)
			return nil, nil
		},
		Record: func(r Record) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.records = append(p.records, r)
		},
		Limits: patient(),
	}
	if change != nil {
		change(&c)
	}
	if c.Open == nil {
		c.Open = p.open
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Handler = h
	t.Cleanup(p.reading.Wait)
	t.Cleanup(h.Wait)
	return p
}

// open is an Open with the connections of the handler's Dial, each of which has a goroutine that reads it to its end.
func (p *proxy) open(q Query, receive func([]byte)) (Socket, error) {
	conn, err := p.config.Dial(context.Background(), q)
	if err != nil {
		return nil, err
	}
	p.reading.Go(func() {
		buffer := make([]byte, 65535)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			receive(buffer[:n])
		}
	})
	return conn, nil
}

// Handle returns the reply to a query; nil: there is none.
func (p *proxy) Handle(ctx context.Context, q Query) []byte {
	replies := make(chan []byte, 1)
	p.HandleQuery(ctx, q, func(r []byte) { replies <- r })
	return <-replies
}

func compile(t testing.TB, rules ...model.DNSRule) *dnsname.Rules {
	t.Helper()
	compiled, err := dnsname.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func (p *proxy) learned() []Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.answers)
}

func (p *proxy) outcomes() []Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Outcome
	for _, r := range p.records {
		all = append(all, r.Outcome)
	}
	return all
}

// counts returns how often there was each outcome.
func (p *proxy) counts() map[Outcome]int {
	count := map[Outcome]int{}
	for _, o := range p.outcomes() {
		count[o]++
	}
	return count
}

// lastRecord returns the record of the last query.
func (p *proxy) lastRecord(t testing.TB) Record {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) == 0 {
		t.Fatal("no query was recorded")
	}
	return p.records[len(p.records)-1]
}

// expectOutcomes compares the outcomes of all queries so far.
func (p *proxy) expectOutcomes(t testing.TB, want ...Outcome) {
	t.Helper()
	if got := p.outcomes(); !slices.Equal(got, want) {
		t.Fatalf("outcomes are %v, want %v", got, want)
	}
}

// query returns a message with one question.
func query(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, kind)
	m.Id = 0x1234
	return m
}

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	raw, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func unpack(t testing.TB, raw []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(raw); err != nil {
		t.Fatalf("unpack %x: %s", raw, err)
	}
	return m
}

// ask has the handler answer one query of a pod.
func (p *proxy) ask(t testing.TB, m *dns.Msg) *dns.Msg {
	t.Helper()
	raw := p.Handle(t.Context(), Query{Endpoint: 7, Client: podAddress, Server: serverAddress, Message: pack(t, m)})
	if raw == nil {
		t.Fatal("there is no reply")
	}
	return unpack(t, raw)
}

// record returns a resource record.
func record(t testing.TB, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

// server is a DNS server on the loopback device.
type server struct {
	udp, tcp netip.AddrPort
}

// newServer returns a server that answers as handle says.
func newServer(t testing.TB, handle dns.HandlerFunc) server {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handle, UDPSize: 4096}, {Listener: listener, Handler: handle}} {
		begun, ended := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(begun) }
		go func() { ended <- s.ActivateAndServe() }()
		<-begun
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-ended
		})
	}
	return server{netip.MustParseAddrPort(packets.LocalAddr().String()), netip.MustParseAddrPort(listener.Addr().String())}
}

// dial is the Dial of a handler whose queries go to the server.
func (s server) dial(ctx context.Context, q Query) (net.Conn, error) {
	var d net.Dialer
	if q.TCP {
		return d.DialContext(ctx, "tcp", s.tcp.String())
	}
	return d.DialContext(ctx, "udp", s.udp.String())
}

// answer returns a handler of a server that answers with the records.
func answer(t testing.TB, records ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		for _, text := range records {
			r.Answer = append(r.Answer, record(t, text))
		}
		_ = w.WriteMsg(r)
	}
}

func address(text string, ttl time.Duration) dnsname.Address {
	return dnsname.Address{Addr: netip.MustParseAddr(text), TTL: ttl}
}

// instant is a server that answers at once with the same records.
type instant struct{ answer []byte }

// open is the Open of a handler whose queries go to the server.
func (i instant) open(_ Query, receive func([]byte)) (Socket, error) {
	return &instantSocket{answer: append([]byte(nil), i.answer...), receive: receive}, nil
}

type instantSocket struct {
	answer  []byte
	receive func([]byte)
}

func (i *instantSocket) Write(m []byte) (int, error) {
	copy(i.answer, m[:2])
	go i.receive(i.answer)
	return len(m), nil
}

func (i *instantSocket) Close() error { return nil }

func answerBytes(t testing.TB, q *dns.Msg, records ...string) []byte {
	m := new(dns.Msg).SetReply(q)
	for _, text := range records {
		m.Answer = append(m.Answer, record(t, text))
	}
	return pack(t, m)
}
