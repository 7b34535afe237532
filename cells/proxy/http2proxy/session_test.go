package http2proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/proxytest"
	"porin.dev/porin/internal/testutil"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %s", r.Proto, r.Method, r.Host, r.RequestURI, body)
}

func get(t testing.TB, c *http.Client, url string) (int, string) {
	t.Helper()
	answer, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestManyRequestsOnOneConnection(t *testing.T) {
	const requests, workers = 10000, 20
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := httpClient(t)
	get(t, c, p.url()) // the connection is there before all want one
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range requests / workers {
				sent := strings.Repeat("x", i%100)
				answer, err := c.Post(fmt.Sprintf("%s/%d/%d?q", p.url(), worker, i), "text/plain", strings.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if want := fmt.Sprintf("HTTP/2.0 POST %s /%d/%d?q %s", p.address(), worker, i, sent); err != nil || string(got) != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
	group.Wait()
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections to the server, want 1", n)
	}
	if n := len(p.recorded(requests + 1)); n != requests+1 {
		t.Errorf("%d records, want %d", n, requests+1)
	}
	p.noStreams()
}

// TestBodies has bodies of many sizes in both directions at a time, larger than every window.
func TestBodies(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Length")
		http.NewResponseController(w).EnableFullDuplex()
		n, err := io.Copy(w, r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Length", fmt.Sprintf("%d %s", n, r.Trailer.Get("X-End")))
	}), Limits{})
	c := httpClient(t)
	var group sync.WaitGroup
	for _, size := range []int{0, 1, 100, 16383, 16384, 16385, 1 << 20, 5<<20 + 7} {
		group.Go(func() {
			sent := strings.Repeat("0123456789", size/10+1)[:size]
			r, err := http.NewRequest("POST", p.url(), io.NopCloser(strings.NewReader(sent)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Trailer = http.Header{"X-End": {"yes"}}
			answer, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			got, err := io.ReadAll(answer.Body)
			if err != nil || string(got) != sent {
				t.Errorf("%d bytes: got %d, %v", size, len(got), err)
			}
			if got, want := answer.Trailer.Get("X-Length"), fmt.Sprintf("%d yes", size); got != want {
				t.Errorf("%d bytes: trailer %q, want %q", size, got, want)
			}
		})
	}
	group.Wait()
	p.noStreams()
}

// TestSlowStreamHoldsUpNoOther makes many responses without a reader, and requests that are answered meanwhile.
func TestSlowStreamHoldsUpNoOther(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			io.Copy(w, io.LimitReader(zeros{}, 20<<20))
		}
	}), Limits{})
	c := httpClient(t)
	for range 30 {
		answer, err := c.Get(p.url() + "/long")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
	}
	for range 100 {
		if status, _ := get(t, c, p.url()); status != 200 {
			t.Fatal(status)
		}
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	s := p.sessions[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := cap(s.client.out) + cap(s.server.out); n > 100<<10 {
		t.Errorf("%d bytes wait in the proxy", n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestDuplex sends and receives by turns on one stream.
func TestDuplex(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		b := make([]byte, 10)
		for {
			n, err := r.Body.Read(b)
			w.Write(b[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				io.WriteString(w, "end")
				return
			}
		}
	}), Limits{})
	in, out := io.Pipe()
	answer, err := httpClient(t).Post(p.url(), "text/plain", in)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for range 100 {
		if _, err := io.WriteString(out, "ping"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if _, err := io.ReadFull(answer.Body, b); err != nil || string(b) != "ping" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	out.Close() // our half of the stream
	if rest, err := io.ReadAll(answer.Body); err != nil || string(rest) != "end" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestDeny(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Method: "GET", Path: "/a.*", Host: "127.0.0.1", Headers: []model.HTTPHeader{{Name: "X-Token", Value: "1"}}}, model.HTTPRule{Path: "/post"})
	c := httpClient(t)
	do := func(method, path, host, token string, body io.Reader) *http.Response {
		t.Helper()
		r, err := http.NewRequest(method, p.url()+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("X-Token", token)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return answer
	}
	denied := do("GET", "/b", "", "1", nil)
	if denied.StatusCode != 403 || !strings.Contains(denied.Header.Get("Proxy-Status"), "no-rule") {
		t.Errorf("%v", denied)
	}
	if p.dials.Load() != 0 {
		t.Error("the server was dialled for a denied request")
	}
	for _, tt := range []struct {
		method, path, host, token string
		status                    int
	}{
		{"GET", "/a", "", "1", 200},
		{"GET", "/a", "other.example", "1", 403},
		{"GET", "/a", "", "2", 403},
		{"POST", "/a", "", "1", 403},
		{"POST", "/post", "", "", 200},
		{"GET", "/a/%2e%2e/b", "", "1", 403},
		{"GET", "/a/../b", "", "1", 403},
		{"GET", "/a//..%2fb", "", "1", 403},
		{"GET", "/a//b", "", "1", 200},
		{"GET", "/a/@scope%2Fb", "", "1", 200},
		{"GET", "/a/../a/b", "", "1", 200},
		{"GET", "/a/b?x=//", "", "1", 200},
	} {
		var body io.Reader
		if tt.method == "POST" {
			body = strings.NewReader(strings.Repeat("x", 300<<10)) // more than the windows
		}
		if got := do(tt.method, tt.path, tt.host, tt.token, body); got.StatusCode != tt.status {
			t.Errorf("%v: status %d", tt, got.StatusCode)
		}
	}
	want := httpproxy.Record{Method: "GET", Host: "127.0.0.1", Path: "/b", Status: 403, Verdict: httpproxy.Denied, Reason: httpproxy.ReasonNoRule}
	if d := cmp.Diff(want, p.recorded(1)[0]); d != "" {
		t.Error(d)
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestPolicyChange decides about each request by what is in force then.
func TestPolicyChange(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := httpClient(t)
	for i := range 10 {
		p.allow(model.HTTPRule{Path: fmt.Sprintf("/%d", i%2)})
		if status, _ := get(t, c, p.url()+"/1"); (status == 200) != (i%2 == 1) {
			t.Errorf("change %d: %d", i, status)
		}
	}
}

// TestDrain lets a response end, refuses no request, and ends the connection.
func TestDrain(t *testing.T) {
	proceed := make(chan struct{})
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-proceed
		}
		io.WriteString(w, "whole")
	}), Limits{})
	c := httpClient(t)
	answer, err := c.Get(p.url() + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	var failed sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		failed.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// The client sends it again, on another connection, when its connection is drained before it has sent anything.
				answer, err := c.Post(p.url(), "text/plain", strings.NewReader("x"))
				if err != nil {
					t.Errorf("request while the proxy is drained: %v", err)
					return
				}
				answer.Body.Close()
			}
		})
	}
	for range 3 {
		time.Sleep(20 * time.Millisecond) // requests are on their way
		p.mu.Lock()
		sessions := slices.Clone(p.sessions)
		p.mu.Unlock()
		for _, s := range sessions { // without the lock, which what a session records takes
			s.Drain()
		}
	}
	p.ended(1) // of the later ones; the first one has a stream
	close(proceed)
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "whole" {
		t.Errorf("%q, %v", body, err)
	}
	answer.Body.Close()
	p.ended(3)
	close(stop)
	failed.Wait()
	for _, r := range p.recorded(1) {
		if r.Verdict != httpproxy.Forwarded {
			t.Errorf("the proxy has not forwarded a request while it was drained: %+v", r)
		}
	}
	for _, err := range p.ended(3) {
		if err != nil {
			t.Errorf("a drained session ended with %v", err)
		}
	}
}

func TestDrainIdle(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{Linger: 100 * time.Millisecond})
	c := p.dial()
	c.next(http2.FrameSettings)
	p.sessions[0].Drain()
	c.expectGoAway(http2.ErrCodeNo)
	c.Close()
	if err := p.ended(1)[0]; err != nil {
		t.Error(err)
	}
}

func TestDrainBeforeServe(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{Linger: 100 * time.Millisecond})
	raw, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, "a session is there", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.sessions) == 1 })
	p.sessions[0].Drain()
	c := newFramer(t, raw)
	if _, err := io.WriteString(c.Conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c.must(c.WriteSettings())
	c.get(1, "/")
	c.expectStatus(1, "200")
	c.expectGoAway(http2.ErrCodeNo)
}

// TestClientCancels passes the cancellation on.
func TestClientCancels(t *testing.T) {
	canceled := make(chan struct{})
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		<-r.Context().Done()
		close(canceled)
	}), Limits{})
	c := httpClient(t)
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{}), "GET", p.url()+"/long", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		proxytest.Eventually(t, "the request is on its way", func() bool { return p.dials.Load() == 1 })
		cancel()
	}()
	if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	get(t, c, p.url()) // the same connection
	if reason := p.recorded(1)[0].Reason; reason == httpproxy.ReasonCanceledByClient {
		<-canceled
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestIdle ends a connection without streams.
func TestIdle(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{Idle: 100 * time.Millisecond})
	c := httpClient(t)
	get(t, c, p.url())
	if err := p.ended(1)[0]; err != nil {
		t.Error(err)
	}
	if status, _ := get(t, c, p.url()); status != 200 {
		t.Error(status)
	}
}

func TestCurl(t *testing.T) {
	testutil.NeedPrograms(t, "curl")
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Path: "/allowed"})
	curl := func(args ...string) string {
		out, err := exec.Command("curl", append([]string{"--silent", "--show-error", "--noproxy", "*", "--max-time", "20",
			"--write-out", " %{http_version} %{http_code}\n"}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("curl %v: %v, %s", args, err, out)
		}
		return string(out)
	}
	body := strings.Repeat("0123456789", 100_000)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{p.url() + "/allowed"}, fmt.Sprintf("HTTP/2.0 GET %s /allowed  2 200\n", p.address())},
		{[]string{p.url() + "/denied"}, " 2 403\n"},
		{[]string{"--data", "@-", p.url() + "/denied"}, " 2 403\n"},
	} {
		if got := curl(append([]string{"--http2-prior-knowledge"}, tt.args...)...); got != tt.want {
			t.Errorf("curl %v: %q, want %q", tt.args, got, tt.want)
		}
	}
	cmd := exec.Command("curl", "--silent", "--noproxy", "*", "--http2-prior-knowledge", "--data-binary", "@-", p.url()+"/allowed")
	cmd.Stdin = strings.NewReader(body)
	if out, err := cmd.Output(); err != nil || !strings.HasSuffix(string(out), "/allowed "+body) {
		t.Errorf("curl's upload: %v, %d bytes", err, len(out))
	}
	if got, want := curl("--http2", p.url()+"/allowed"), fmt.Sprintf("HTTP/1.1 GET %s /allowed  1.1 200\n", p.address()); got != want {
		t.Errorf("Upgrade: h2c: %q, want %q", got, want)
	}
}

// TestDrainWhileDialling drains while the server is dialled: the request is served.
func TestDrainWhileDialling(t *testing.T) {
	dialling, final := make(chan struct{}), make(chan struct{})
	server := rawServer(t, func(f *framer) { f.headers(); f.head(1, true, ":status", "200"); io.Copy(io.Discard, f.Conn) })
	p := startProxy(t, &proxy{server: server, limits: Limits{Linger: 100 * time.Millisecond}, dialed: func(net.Conn) error {
		close(dialling)
		<-final
		return nil
	}})
	c := p.dial()
	c.get(1, "/")
	<-dialling
	p.mu.Lock()
	s := p.sessions[0]
	p.mu.Unlock()
	s.Drain()
	proxytest.Eventually(t, "the client is told the last stream", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.final
	})
	s.settle()
	close(final)
	c.expectStatus(1, "200")
	if rest, err := io.ReadAll(c.Conn); len(rest) > 0 || err != nil {
		t.Errorf("after the response: %q, %v", rest, err)
	}
}
