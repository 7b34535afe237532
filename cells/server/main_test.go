package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(envCallAs); socket != "" {
		callAs(socket)
		return
	}
	testutil.Main(m, testutil.NoLeaks())
}

// routesFunc is a cell with one mount function.
type routesFunc func(chi.Router)

func (f routesFunc) Mount(r chi.Router) { f(r) }

// handle is a Parts with one route.
func handle(method, pattern string, h http.HandlerFunc) Parts {
	return Parts{Routes: []Routes{routesFunc(func(r chi.Router) { r.Method(method, pattern, h) })}}
}

// rig is a server on a socket of its own, and a client of it.
type rig struct {
	*Server
	http *http.Client
	log  *strings.Builder // read it after stop
}

func newRig(t *testing.T, parts Parts, change ...func(*Server)) *rig {
	t.Helper()
	log := new(strings.Builder)
	cfg := Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	s, err := New(cfg, Info{Version: "v0", Node: "here"}, slog.New(slog.NewTextHandler(log, nil)), parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	s.router = s.newRouter() // with the limits as changed
	if err := s.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: s, http: clientOf(s.cfg.Socket), log: log}
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		r.stop(t)
	})
	return r
}

func clientOf(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

func (r *rig) stop(t *testing.T) {
	t.Helper()
	if err := r.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// do returns the status, the header, and the body.
func (r *rig) do(t *testing.T, method, path string, body io.Reader, header ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://porin"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) == 2 {
		request.Header.Set(header[0], header[1])
	}
	answer, err := r.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(text)
}

// problem is do for a call that fails.
func (r *rig) problem(t *testing.T, method, path string, body io.Reader, header ...string) v1.Problem {
	t.Helper()
	status, answered, text := r.do(t, method, path, body, header...)
	var p v1.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("answer %d %q is no problem: %v", status, text, err)
	}
	if p.Status != status || answered.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, content type %q of %+v", status, answered.Get("Content-Type"), p)
	}
	return p
}
