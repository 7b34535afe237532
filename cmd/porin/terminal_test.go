package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

func TestIsTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if isTerminal(null) {
		t.Error("/dev/null is taken for a terminal")
	}
}

// TestErrorKeepsTerminal has the agent refuse a manifest whose names would move the cursor and set the title of the
// terminal.
func TestErrorKeepsTerminal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		httpx.WriteProblem(w, fault.New(fault.Invalid, "NetworkPolicy demo/\x1b[2J\x1b]0;title\a: no name\nNetworkPolicy demo/\u009b2J: no name"))
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(refuse), ReadHeaderTimeout: time.Minute}}
	server.Start()
	defer server.Close()
	var out, stderr bytes.Buffer
	env := environment{in: bytes.NewReader([]byte("{}")), out: &out, err: &stderr, getenv: func(string) string { return "" }, now: time.Now}
	if code := run(t.Context(), []string{"--socket", socket, "policy", "diff", "-f", "-"}, env); code == 0 {
		t.Error("no error")
	}
	const want = "porin: NetworkPolicy demo/\uFFFD[2J\uFFFD]0;title\uFFFD: no name\nNetworkPolicy demo/\uFFFD2J: no name (invalid)\n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
}
