package httpproxy

import (
	"fmt"
	"net/http"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// TestHeaderTwice: a rule wants a value of a header exactly. A request that has the header twice is read in different
// ways by servers (most take the first line, or join them), so it must not pass, as a path that may be read in
// different ways does not.
func TestHeaderTwice(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Role")) }), Limits{})
	p.allow(model.HTTPRule{Headers: []model.HTTPHeader{{Name: "X-Role", Value: "guest"}}})
	c := p.dial()
	for headers, status := range map[string]int{
		"X-Role: guest\r\n":                  http.StatusOK,
		"X-Role: admin\r\nX-Role: guest\r\n": http.StatusForbidden,
		"x-role: guest\r\nX-Role: admin\r\n": http.StatusForbidden,
		"X-Role: guest\r\nX-Role: guest\r\n": http.StatusForbidden,
		"X-Other: a\r\nX-Role: guest\r\n":    http.StatusOK,
		"X-Role: admin, guest\r\n":           http.StatusForbidden,
	} {
		c.send("GET / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n")
		if answer, role := c.response(http.MethodGet); answer.StatusCode != status {
			t.Errorf("%q: the server has answered %d to the role %q, want %d", headers, answer.StatusCode, role, status)
		}
	}
}
