package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks(), testutil.HostUntouched()) }

const serverAddress = "10.1.1.2:80"

func shell(t *testing.T, script string) error {
	t.Helper()
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

// newEnds returns a client and a server in namespaces of their own, for which the test's namespace is the router, by
// devices of these names.
func newEnds(t *testing.T) (client, server *testutil.Namespace) {
	t.Helper()
	client, server = testutil.NetNS(t), testutil.NetNS(t)
	for i, end := range []*testutil.Namespace{client, server} {
		device := []string{"client", "server"}[i]
		err := errors.Join(
			shell(t, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s; ip addr add 10.1.%d.1/24 dev %[1]s", device, end.Path(), i)),
			shell(t, fmt.Sprintf("ip link set %s up; echo 1 >/proc/sys/net/ipv4/ip_forward", device)),
			end.Do(func() error {
				return shell(t, fmt.Sprintf("ip addr add 10.1.%d.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.1.%[1]d.1", i))
			}),
		)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shell(t, "ip link del "+device) })
	}
	return client, server
}

// serve answers with the client's address.
func serve(t *testing.T, n *testutil.Namespace) {
	listener := n.Listen(t, netip.MustParseAddrPort(serverAddress))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
}

// get returns the status, and the client's address as the server has seen it.
func get(t *testing.T, from *testutil.Namespace, path string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return from.Dial(netip.MustParseAddrPort(serverAddress), testutil.Patience)
	}}
	response, err := (&http.Client{Transport: transport, Timeout: testutil.Patience}).Get("http://" + serverAddress + path)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, testutil.Body(t, response)
}

func TestRedirect(t *testing.T) {
	client, server := newEnds(t)
	serve(t, server)
	if status, _ := get(t, client, "/private"); status != http.StatusOK {
		t.Fatalf("without the program: status %d", status)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- run(ctx, "client", testutil.BPFFS(t), func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	status, body := get(t, client, "/public/x")
	if seen, err := netip.ParseAddrPort(body); err != nil || status != http.StatusOK || seen.Addr().String() != "10.1.0.2" || seen.Port() < 61000 {
		t.Errorf("what the rule allows: status %d, the server has seen %q, want 10.1.0.2 with a port of the proxy's", status, body)
	}
	if status, _ := get(t, client, "/private"); status != http.StatusForbidden {
		t.Errorf("what no rule allows: status %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if status, body := get(t, client, "/private"); status != http.StatusOK {
		t.Errorf("after the end: status %d, %q", status, body)
	}
	out, err := exec.Command("sh", "-c", "ip link; ip rule; nft list ruleset; tc qdisc show dev client").CombinedOutput()
	if err != nil || strings.Contains(string(out), "porin") || strings.Contains(string(out), "clsact") {
		t.Errorf("what is left: %v\n%s", err, out)
	}
}

// TestOutside has the program import nothing that others may not.
func TestOutside(t *testing.T) {
	for _, name := range []string{"main.go", "kernel.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range file.Imports {
			if strings.Contains(one.Path.Value, "/internal/") {
				t.Errorf("%s imports %s", name, one.Path.Value)
			}
		}
	}
}

// TestInDocs has docs/embedding.md show the function run as it is.
func TestInDocs(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(source), "// run redirects")
	if !ok || !strings.Contains(string(page), "```go\n// run redirects"+body+"```\n") {
		t.Error("docs/embedding.md does not show the function run as it is")
	}
}
