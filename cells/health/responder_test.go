package health

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/testutil"
)

var loopbacks = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}

func serving(t *testing.T) *testutil.Namespace {
	t.Helper()
	ns := testutil.NetNS(t)
	r := newResponder("node1", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { r.stop(t.Context()) })
	if err := r.serve(t.Context(), ns.File(), 1, loopbacks); err != nil {
		t.Fatal(err)
	}
	return ns
}

func dial(t *testing.T, ns *testutil.Namespace, addr netip.Addr) net.Conn {
	t.Helper()
	conn, err := ns.Dial(netip.AddrPortFrom(addr, probe.Port), testutil.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	return conn
}

// call sends the text, and returns all that comes back.
func call(t *testing.T, ns *testutil.Namespace, addr netip.Addr, text string) string {
	t.Helper()
	conn := dial(t, ns, addr)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // which the server may cut
	return string(answer)
}

const helloCall = "GET " + probe.HelloPath + " HTTP/1.1\r\nHost: x\r\n\r\n"

func TestResponder(t *testing.T) {
	ns := serving(t)
	for _, addr := range loopbacks {
		if answer := call(t, ns, addr, helloCall); !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.HasSuffix(answer, "\r\n{\"node\":\"node1\"}\n") {
			t.Errorf("%s: %q", addr, answer)
		}
	}
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                                         "HTTP/1.1 404 ",
		"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":                           "HTTP/1.1 405 ",
		"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 4*maxCallHeader) + "\r\n\r\n": "HTTP/1.1 431 ",
		"\x00\x01nonsense\r\n\r\n":                                                                  "HTTP/1.1 400 ",
	} {
		if answer := call(t, ns, loopbacks[0], text); !strings.HasPrefix(answer, want) {
			t.Errorf("%.40q: %.200q, want %q", text, answer, want)
		}
	}
}

// A caller that says nothing, or says it slowly, is cut.
func TestResponderSlowCaller(t *testing.T) {
	ns := serving(t)
	began := time.Now()
	conn := dial(t, ns, loopbacks[0])
	_, _ = io.WriteString(conn, "GET /hello HTTP/1.1\r\n")
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*callTime {
		t.Errorf("it was cut after %s, want %s", took, callTime)
	}
}

// Many clients that hold their connections keep no other out, and the agent has no more of them than it wants.
func TestResponderManyCallers(t *testing.T) {
	ns := serving(t)
	var held []net.Conn
	for range maxConnections + 20 {
		held = append(held, dial(t, ns, loopbacks[0]))
	}
	if answer := call(t, ns, loopbacks[0], helloCall); !strings.Contains(answer, "node1") {
		t.Errorf("beside %d that are held: %q", len(held), answer)
	}
	_ = held[0].SetReadDeadline(time.Now().Add(testutil.Patience))
	if _, err := held[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest connection is open")
	}
}

// Another namespace, and the end, leave no socket.
func TestResponderStops(t *testing.T) {
	first, second := testutil.NetNS(t), testutil.NetNS(t)
	files := testutil.OpenFiles(t)
	r := newResponder("node1", slog.New(slog.DiscardHandler))
	for i, ns := range []*testutil.Namespace{first, second} {
		if err := r.serve(t.Context(), ns.File(), uint64(i+1), loopbacks); err != nil {
			t.Fatal(err)
		}
		if answer := call(t, ns, loopbacks[1], helloCall); !strings.Contains(answer, "node1") {
			t.Errorf("%q", answer)
		}
	}
	if conn, err := first.Dial(netip.AddrPortFrom(loopbacks[0], probe.Port), testutil.Patience); err == nil {
		_ = conn.Close()
		t.Error("it answers in the namespace of before")
	}
	r.stop(t.Context())
	testutil.Eventually(t, func() error {
		if now := testutil.OpenFiles(t); now > files+2 { // the client's, which end with the test
			return fmt.Errorf("%d files are open, %d before", now, files)
		}
		return nil
	})
	if err := r.serve(t.Context(), first.File(), 1, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fd00::99")}); err == nil {
		t.Error("it serves at an address that is not there")
	}
}
