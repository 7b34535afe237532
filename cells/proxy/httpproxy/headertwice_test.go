package httpproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// TestHeaderTwice: a rule wants a value of a header exactly. A request that has the header twice is read in different ways by servers (most take the first line, or join them), so
// it must not pass, as a path that may be read in different ways does not.
func TestHeaderTwice(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Role")) }))
	defer server.Close()
	p := newProxy(t, server.Listener.Addr().String(), Limits{})
	p.allow(model.HTTPRule{Headers: []model.HTTPHeader{{Name: "X-Role", Value: "guest"}}})
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	for headers, status := range map[string]int{
		"X-Role: guest\r\n":                  http.StatusOK,
		"X-Role: admin\r\nX-Role: guest\r\n": http.StatusForbidden,
		"x-role: guest\r\nX-Role: admin\r\n": http.StatusForbidden,
		"X-Role: guest\r\nX-Role: guest\r\n": http.StatusForbidden,
		"X-Other: a\r\nX-Role: guest\r\n":    http.StatusOK,
		"X-Role: admin, guest\r\n":           http.StatusForbidden,
	} {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n"+headers+"\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if role, _ := io.ReadAll(answer.Body); answer.StatusCode != status {
			t.Errorf("%q: the server has answered %d to the role %q, want %d", headers, answer.StatusCode, role, status)
		}
	}
}
