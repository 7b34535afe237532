package http2proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/proxytest"
)

// proxy is a listener whose connections are served by sessions, in front of one server.
type proxy struct {
	t        testing.TB
	listener net.Listener
	server   string // address of the server
	rules    atomic.Pointer[httpproxy.Rules]
	limits   Limits
	dials    atomic.Int32
	cancel   context.CancelFunc
	quiet    bool                                                // nothing is recorded
	dialed   func(net.Conn) error                                // unless nil, a dial calls it when it is connected
	decide   func(*Session, *httpproxy.Request) httpproxy.Reason // unless nil, instead of the rules
	memory   bufconn.Memory
	served   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	records  []httpproxy.Record
	errs     []error
	sessions []*Session
}

// newProxy starts a proxy that allows everything.
func newProxy(t testing.TB, server string, limits Limits) *proxy {
	t.Helper()
	return startProxy(t, &proxy{server: server, limits: limits})
}

func startProxy(t testing.TB, p *proxy) *proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p.t, p.listener, p.cancel = t, proxytest.Listen(t), cancel
	p.allow(model.HTTPRule{})
	go func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			http1, http2 := p.session(c)
			p.mu.Lock()
			p.sessions = append(p.sessions, http2)
			p.served.Go(func() {
				err := http1.Serve(ctx)
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errs = append(p.errs, err)
			})
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		p.listener.Close()
		cancel()
		p.served.Wait()
	})
	return p
}

func (p *proxy) session(c net.Conn) (*httpproxy.Session, *Session) {
	s := &Session{
		Dial: func(ctx context.Context) (net.Conn, error) {
			p.dials.Add(1)
			c, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
			if err == nil && p.dialed != nil {
				err = p.dialed(c)
			}
			return c, err
		},
		Decide: func(r *httpproxy.Request) httpproxy.Reason { return p.rules.Load().Decide(r) },
		Limits: p.limits,
	}
	if p.decide != nil {
		s.Decide = func(r *httpproxy.Request) httpproxy.Reason { return p.decide(s, r) }
	}
	if !p.quiet {
		s.Record = func(r httpproxy.Record) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.records = append(p.records, r)
		}
	}
	return &httpproxy.Session{Client: c, Dial: s.Dial, Decide: s.Decide, Record: s.Record, HTTP2: s.Serve, Memory: p.memory}, s
}

func (p *proxy) allow(rules ...model.HTTPRule) {
	p.t.Helper()
	compiled, err := httpproxy.Compile(rules)
	if err != nil {
		p.t.Fatal(err)
	}
	p.rules.Store(compiled)
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) url() string { return "http://" + p.address() }

// recorded waits for n records, and returns what was recorded so far.
func (p *proxy) recorded(n int) []httpproxy.Record {
	p.t.Helper()
	var records []httpproxy.Record
	proxytest.Eventually(p.t, "requests are recorded", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		records = append([]httpproxy.Record(nil), p.records...)
		return len(records) >= n
	})
	return records
}

func (p *proxy) lastReason(n int) httpproxy.Reason {
	p.t.Helper()
	records := p.recorded(n)
	return records[len(records)-1].Reason
}

// ended waits for the end of n sessions, and returns what Serve returned.
func (p *proxy) ended(n int) []error {
	p.t.Helper()
	var errs []error
	proxytest.Eventually(p.t, "sessions end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		errs = append([]error(nil), p.errs...)
		return len(errs) >= n
	})
	return errs
}

// noStreams waits until no session has a stream.
func (p *proxy) noStreams() {
	p.t.Helper()
	proxytest.Eventually(p.t, "streams end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, s := range p.sessions {
			s.mu.Lock()
			n += len(s.streams)
			s.mu.Unlock()
		}
		return n == 0
	})
}

// httpServer starts a server of net/http that speaks HTTP/1 and HTTP/2.
func httpServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l := proxytest.Listen(t)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// httpClient returns a client of net/http that speaks HTTP/2 at once.
func httpClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// framer is one end of a connection on which a test writes its own frames, by another implementation than the proxy's.
type framer struct {
	*http2.Framer
	net.Conn
	t       testing.TB
	block   bytes.Buffer
	encoder *hpack.Encoder
}

func newFramer(t testing.TB, c net.Conn) *framer {
	f := &framer{Framer: http2.NewFramer(c, c), Conn: c, t: t}
	f.Framer.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.encoder = hpack.NewEncoder(&f.block)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return f
}

// dial connects to the proxy as a client that has sent its preface and SETTINGS.
func (p *proxy) dial(settings ...http2.Setting) *framer {
	p.t.Helper()
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		p.t.Fatal(err)
	}
	f := newFramer(p.t, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		p.t.Fatal(err)
	}
	f.must(f.WriteSettings(settings...))
	return f
}

func (f *framer) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// fields encodes pairs of names and values.
func (f *framer) fields(pairs ...string) []byte {
	f.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		f.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return bytes.Clone(f.block.Bytes())
}

// head sends a header block.
func (f *framer) head(stream uint32, end bool, pairs ...string) {
	f.t.Helper()
	f.must(f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.fields(pairs...), EndStream: end, EndHeaders: true}))
}

// get sends a request without body.
func (f *framer) get(stream uint32, path string, more ...string) {
	f.t.Helper()
	f.head(stream, true, append([]string{":method", "GET", ":scheme", "http", ":authority", "h.example", ":path", path}, more...)...)
}

func (f *framer) post(stream uint32, path string, more ...string) {
	f.t.Helper()
	f.head(stream, false, append([]string{":method", "POST", ":scheme", "http", ":authority", "h.example", ":path", path}, more...)...)
}

// next returns the next frame that is of one of the kinds. SETTINGS are acknowledged.
func (f *framer) next(kinds ...http2.FrameType) http2.Frame {
	f.t.Helper()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("waiting for %v: %v", kinds, err)
		}
		if settings, ok := got.(*http2.SettingsFrame); ok && !settings.IsAck() {
			f.must(f.WriteSettingsAck())
		}
		for _, k := range kinds {
			if got.Header().Type == k {
				return got
			}
		}
	}
}

// headers returns the next head of a message, or trailers.
func (f *framer) headers() *http2.MetaHeadersFrame {
	f.t.Helper()
	return f.next(http2.FrameHeaders).(*http2.MetaHeadersFrame)
}

func (f *framer) expectReset(stream uint32, code http2.ErrCode) {
	f.t.Helper()
	if r := f.next(http2.FrameRSTStream).(*http2.RSTStreamFrame); r.StreamID != stream || r.ErrCode != code {
		f.t.Errorf("RST_STREAM of %d with %v, want %d with %v", r.StreamID, r.ErrCode, stream, code)
	}
}

func (f *framer) expectStatus(stream uint32, status string) *http2.MetaHeadersFrame {
	f.t.Helper()
	h := f.headers()
	if h.StreamID != stream || h.PseudoValue("status") != status {
		f.t.Errorf("stream %d: %v, want stream %d and status %s", h.StreamID, h.Fields, stream, status)
	}
	return h
}

// expectGoAway also wants the end of the connection.
func (f *framer) expectGoAway(code http2.ErrCode) *http2.GoAwayFrame {
	f.t.Helper()
	for {
		g := f.next(http2.FrameGoAway).(*http2.GoAwayFrame)
		if g.LastStreamID == maxStream && g.ErrCode == http2.ErrCodeNo {
			continue // the first of two
		}
		if g.ErrCode != code {
			f.t.Errorf("GOAWAY with %v, want %v", g.ErrCode, code)
		}
		last := *g
		if rest, err := io.ReadAll(f.Conn); len(rest) > 0 || err != nil {
			f.t.Errorf("after GOAWAY: %q, %v", rest, err)
		}
		return &last
	}
}

func value(h *http2.MetaHeadersFrame, name string) string {
	for _, f := range h.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// rawServer starts a server that reads a client's preface and sends SETTINGS, and calls serve for each connection then.
func rawServer(t testing.TB, serve func(f *framer), settings ...http2.Setting) string {
	t.Helper()
	return plainServer(t, func(c net.Conn) {
		f := newFramer(t, c)
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		if f.WriteSettings(settings...) == nil {
			serve(f)
		}
	})
}

// plainServer starts a server that calls serve for each connection, and closes it then.
func plainServer(t testing.TB, serve func(c net.Conn)) string {
	t.Helper()
	l := proxytest.Listen(t)
	var served sync.WaitGroup
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		served.Wait()
	})
	return l.Addr().String()
}
