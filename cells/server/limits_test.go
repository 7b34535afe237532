package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/testutil"
)

// echo reads a body as every handler does.
var echo = httpx.Handler(func(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.DeleteRequest](w, r)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, body)
}).ServeHTTP

func TestBodyTooLarge(t *testing.T) {
	r := newRig(t, handle(http.MethodPut, "/", echo), func(s *Server) { s.limits.bodyBytes = 100 })
	large := `{"containerID":"` + strings.Repeat("a", 100) + `"}`
	bodies := map[string]io.Reader{
		"declared": strings.NewReader(large),
		"chunked":  io.MultiReader(strings.NewReader(large)), // of unknown length
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			if p := r.problem(t, http.MethodPut, "/", body); p.Status != 413 || p.Code != v1.CodeTooLarge {
				t.Errorf("problem %+v", p)
			}
		})
	}
	if status, _, _ := r.do(t, http.MethodPut, "/", strings.NewReader(`{"containerID":"a"}`)); status != 200 {
		t.Errorf("a small body is answered with %d", status)
	}
}

func TestBodyTooSlow(t *testing.T) {
	r := newRig(t, handle(http.MethodPut, "/", echo), func(s *Server) { s.limits.read = 20 * time.Millisecond })
	body, never := io.Pipe()
	defer func() { _ = never.Close() }()
	if p := r.problem(t, http.MethodPut, "/", body); p.Status != 504 || p.Code != v1.CodeDeadline {
		t.Errorf("problem %+v", p)
	}
}

// TestLargeBodies reads a second large body when the first one has ended. Small bodies need not wait.
func TestLargeBodies(t *testing.T) {
	const free = 10
	reading := make(chan struct{}, 2) // large bodies
	r := newRig(t, handle(http.MethodPut, "/", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.ReadFull(r.Body, make([]byte, free+1)); n > free {
			reading <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}), func(s *Server) { s.limits.freeBytes, s.limits.largeBodies = free, 1 })
	answered := make(chan int, 2)
	put := func(body io.Reader) {
		status, _, _ := r.do(t, http.MethodPut, "/", body)
		answered <- status
	}
	body, first := io.Pipe()
	go put(body)
	if _, err := io.WriteString(first, strings.Repeat("a", free+1)); err != nil {
		t.Fatal(err)
	}
	<-reading
	if status, _, _ := r.do(t, http.MethodPut, "/", strings.NewReader("a")); status != 200 {
		t.Errorf("a small body is answered with %d", status)
	}
	go put(strings.NewReader(strings.Repeat("a", free+1)))
	select {
	case <-reading:
		t.Error("the second large body is read beside the first one")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	if a, b := <-answered, <-answered; a != 200 || b != 200 {
		t.Errorf("answers %d and %d after the end of the first body", a, b)
	}
}

// TestConnectionLimit serves one connection at a time: another one waits.
func TestConnectionLimit(t *testing.T) {
	r := newRig(t, Parts{}, func(s *Server) { s.limits.connections = 1 })
	dial := func() net.Conn {
		conn, err := net.Dial("unix", r.cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answer := func(conn net.Conn, within time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(within))
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		return err
	}
	first := dial()
	if err := answer(first, testutil.Patience); err != nil {
		t.Fatal(err)
	}
	second := dial()
	defer second.Close()
	if err := answer(second, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("second connection while the first is open: error %v", err)
	}
	_ = first.Close()
	if err := answer(second, testutil.Patience); err != nil {
		t.Errorf("second connection after the first was closed: %v", err)
	}
}

// The time to send a request must not end a handler that has read it.
func TestSlowHandler(t *testing.T) {
	r := newRig(t, handle(http.MethodPut, "/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpx.Decode[v1.DeleteRequest](w, r); err != nil {
			httpx.WriteProblem(w, err)
			return
		}
		select {
		case <-r.Context().Done():
			httpx.WriteProblem(w, r.Context().Err())
		case <-time.After(60 * time.Millisecond):
		}
	}), func(s *Server) { s.limits.read, s.limits.header = 20*time.Millisecond, 20*time.Millisecond })
	if status, _, text := r.do(t, http.MethodPut, "/", strings.NewReader(`{"containerID":"a"}`)); status != 200 {
		t.Errorf("answer %d %s", status, text)
	}
}

func TestSilentClient(t *testing.T) {
	r := newRig(t, Parts{}, func(s *Server) { s.limits.header = 20 * time.Millisecond })
	conn, err := r.http.Transport.(*http.Transport).DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET /v1/status HT")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection was not closed: %v", err)
	}
}

func TestClientNotReading(t *testing.T) {
	failed := make(chan error, 1)
	r := newRig(t, handle(http.MethodGet, "/", func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20)) // more than a socket buffers
		failed <- err
	}), func(s *Server) { s.limits.answer = 20 * time.Millisecond })
	answer, err := r.http.Get("http://porin/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := <-failed; err == nil {
		t.Error("the handler wrote all of it")
	}
}

func TestTimeoutHeader(t *testing.T) {
	r := newRig(t, handle(http.MethodGet, "/", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		httpx.WriteProblem(w, r.Context().Err())
	}))
	if p := r.problem(t, http.MethodGet, "/", nil, v1.TimeoutHeader, "10ms"); p.Status != 504 || p.Code != v1.CodeDeadline {
		t.Errorf("problem %+v", p)
	}
}

func TestTimeoutHeaderLimits(t *testing.T) {
	tests := []struct {
		header   string
		min, max time.Duration
	}{
		{"10s", 8 * time.Second, 9 * time.Second},
		{"100s", 98 * time.Second, 99 * time.Second},
		{"1000h", 9 * time.Minute, 10 * time.Minute},
		{"", 0, 0},
	}
	for _, tt := range tests {
		var left time.Duration
		r := newRig(t, handle(http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) {
			if deadline, ok := r.Context().Deadline(); ok {
				left = time.Until(deadline)
			}
		}))
		r.do(t, http.MethodGet, "/", nil, v1.TimeoutHeader, tt.header)
		if left < tt.min || left > tt.max {
			t.Errorf("%q leaves %v, want %v to %v", tt.header, left, tt.min, tt.max)
		}
	}
}

func TestTimeoutHeaderInvalid(t *testing.T) {
	r := newRig(t, handle(http.MethodGet, "/", func(http.ResponseWriter, *http.Request) {}))
	for _, header := range []string{"0s", "-1s", "30", "soon", strings.Repeat("9", 1000) + "h"} {
		if p := r.problem(t, http.MethodGet, "/", nil, v1.TimeoutHeader, header); p.Status != 400 || p.Code != v1.CodeInvalid {
			t.Errorf("%.20s: problem %+v", header, p)
		}
	}
}

func TestContextOfClosedConnection(t *testing.T) {
	began, ended := make(chan bool), make(chan bool)
	r := newRig(t, handle(http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://porin/", nil)
	if answer, err := r.http.Do(request); err == nil {
		_ = answer.Body.Close()
		t.Error("answered")
	}
	<-ended
}
