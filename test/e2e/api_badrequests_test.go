package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestBadRequestsToTheAPI sends what a broken or hostile client would.
func TestBadRequestsToTheAPI(t *testing.T) {
	r := newRig(t)
	good := `{"network":"porin"}`
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, words        string
	}{
		"malformed JSON":         {"PUT", "/v1/endpoint/c1:eth0", `{"host":`, 400, v1.CodeInvalid, "read body"},
		"an empty body":          {"PUT", "/v1/endpoint/c1:eth0", ``, 400, v1.CodeInvalid, "empty"},
		"an unknown field":       {"PUT", "/v1/endpoint/c1:eth0", `{"hots":{}}`, 400, v1.CodeInvalid, "unknown field"},
		"two values":             {"PUT", "/v1/endpoint/c1:eth0", good + good, 400, v1.CodeInvalid, "more than one"},
		"an oversized body":      {"PUT", "/v1/endpoint/c1:eth0", `{"netns":"` + strings.Repeat("a", 2<<20) + `"}`, 413, v1.CodeTooLarge, "larger than"},
		"no interface name":      {"PUT", "/v1/endpoint/c1:", good, 400, v1.CodeInvalid, "interface name is missing"},
		"an empty container ID":  {"PUT", "/v1/endpoint/:eth0", good, 400, v1.CodeInvalid, "container ID is missing"},
		"a long container ID":    {"PUT", "/v1/endpoint/" + strings.Repeat("c", 300) + ":eth0", good, 400, v1.CodeInvalid, "longer than"},
		"a path in an ID":        {"PUT", "/v1/endpoint/..%2f..%2fetc:eth0", good, 400, v1.CodeInvalid, "container ID"},
		"a path in a name":       {"PUT", "/v1/endpoint/c1:..%2feth0", good, 400, v1.CodeInvalid, "interface name"},
		"no namespace":           {"PUT", "/v1/endpoint/c1:eth0", good, 400, v1.CodeInvalid, "no descriptor of the container's network namespace"},
		"a host interface":       {"PUT", "/v1/endpoint/c1:eth0", `{"host":{}}`, 400, v1.CodeInvalid, "unknown field"},
		"a small MTU":            {"PUT", "/v1/endpoint/c1:eth0", `{"mtu":68}`, 400, v1.CodeInvalid, "mtu 68"},
		"no such endpoint":       {"GET", "/v1/endpoint/4242", ``, 404, v1.CodeNotFound, "no such endpoint"},
		"a bad reference":        {"GET", "/v1/endpoint/ipv4:nonsense", ``, 400, v1.CodeInvalid, "no address"},
		"a DELETE of everything": {"DELETE", "/v1/endpoint", `{"containerID":""}`, 400, v1.CodeInvalid, "container ID is missing"},
		"no such call":           {"GET", "/v1/nothing", ``, 404, v1.CodeNotFound, "/v1/nothing"},
		"no such method":         {"PATCH", "/v1/endpoint", ``, 405, "", "PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := rawRequest(t, r.node.Socket, c.method, c.path, c.body)
			if status != c.status || !strings.Contains(body, c.words) || !strings.Contains(body, `"code":"`+c.code) {
				t.Errorf("%d %s\nwant %d, code %s, with %q", status, body, c.status, c.code, c.words)
			}
		})
	}
	r.nothingLeft()
}

func rawRequest(t *testing.T, socket, method, path, body string) (status int, answer string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	request, err := http.NewRequest(method, "http://porin"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, testutil.Body(t, response)
}

// TestUnfinishedBodies lets callers send large bodies that they do not finish, and answers another caller meanwhile.
func TestUnfinishedBodies(t *testing.T) {
	r := newRig(t)
	part := append([]byte(`{"text":"`), bytes.Repeat([]byte("a"), 1<<20-100)...)
	_, before := usage(t, r.agent.PID())
	var senders sync.WaitGroup
	defer senders.Wait()
	for range 200 {
		conn, err := net.Dial("unix", r.node.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		senders.Go(func() {
			_, _ = fmt.Fprintf(conn, "PUT /v1/policy HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 1<<20)
			_, _ = conn.Write(part) // it ends with the connection
		})
	}
	if status, _ := rawRequest(t, r.node.Socket, "GET", "/v1/status", ""); status != 200 {
		t.Errorf("status %d", status)
	}
	most := before
	for range 40 {
		time.Sleep(50 * time.Millisecond)
		_, now := usage(t, r.agent.PID())
		most = max(most, now)
	}
	if grown := (most - before) >> 20; grown > 32 {
		t.Errorf("the agent grew by %d MiB", grown)
	}
}
