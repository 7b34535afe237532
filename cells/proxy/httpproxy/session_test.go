package httpproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
}

func TestManyRequestsOnOneConnection(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer c.CloseIdleConnections()
	for i := range 10000 {
		body := strings.Repeat("x", i%100)
		answer, err := c.Post(fmt.Sprintf("%s/%d?q", p.url(), i), "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if want := fmt.Sprintf("POST %s /%d?q %s", p.listener.Addr(), i, body); err != nil || string(got) != want {
			t.Fatalf("request %d: %q, %v; want %q", i, got, err, want)
		}
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections to the server, want 1", n)
	}
	if n := len(p.recorded()); n != 10000 {
		t.Errorf("%d records, want 10000", n)
	}
}

func TestDenyKeepsConnection(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Method: "GET", Path: "/a.*"})
	c := p.dial()
	c.send("GET /b HTTP/1.1\r\nHost: H.example:80\r\n\r\n")
	c.expect(403, "policy")
	if n := p.dials.Load(); n != 0 {
		t.Errorf("the server was dialled for a denied request")
	}
	c.send("POST /a HTTP/1.1\r\nHost: h.example\r\nContent-Length: 5\r\n\r\nGET /GET /a1 HTTP/1.1\r\nHost: h.example\r\n\r\n")
	c.expect(403, "policy")
	c.expect(200, "GET h.example /a1 ")
	want := []Record{
		{Method: "GET", Host: "h.example", Path: "/b", Status: 403, Verdict: Denied, Reason: ReasonNoRule},
		{Method: "POST", Host: "h.example", Path: "/a", Status: 403, Verdict: Denied, Reason: ReasonNoRule},
		{Method: "GET", Host: "h.example", Path: "/a1", Status: 200, Verdict: Forwarded},
	}
	if d := cmp.Diff(want, p.recorded()); d != "" {
		t.Error(d)
	}
}
