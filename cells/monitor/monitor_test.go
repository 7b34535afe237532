package monitor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/monitor"
)

func TestSlowClient(t *testing.T) {
	m := newMonitor(t, 10)
	events := connect(t, m)
	const published = 20_000 // ten megabytes, and a socket holds less than one
	for range published {
		m.Publish(v1.Event{Message: strings.Repeat("x", 500)})
	}
	var last, lost uint64
	for last < published {
		var event v1.Event
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		lost += event.Seq - last - 1
		last = event.Seq
	}
	if lost == 0 {
		t.Error("nothing was lost: where were the events kept?")
	}
}

func TestStopClientNotReading(t *testing.T) {
	m := newMonitor(t, 10_000)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s, err := serve(socket, m)
	if err != nil {
		t.Fatal(err)
	}
	connectTo(t, socket)
	for range 10_000 {
		m.Publish(v1.Event{Message: strings.Repeat("x", 500)})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestPublishTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor(t, 10)
		now := time.Now()
		m.Publish(v1.Event{})
		m.Publish(v1.Event{Time: now.Add(-time.Hour)})
		body := json.NewDecoder(get(m, "").Body)
		for _, want := range []time.Time{now, now.Add(-time.Hour)} {
			var event v1.Event
			if err := body.Decode(&event); err != nil || !event.Time.Equal(want) {
				t.Errorf("time %v, want %v (%v)", event.Time, want, err)
			}
		}
	})
}

func TestPublishConcurrently(t *testing.T) {
	m := newMonitor(t, 8)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				m.Publish(v1.Event{})
			}
		})
		all.Go(func() { get(m, "?follow=true") })
	}
	all.Go(func() {
		for range 50 {
			get(m, "")
		}
		m.Stopping()
	})
	all.Wait()
}

func TestBadQuery(t *testing.T) {
	for _, query := range []string{"?since=x", "?since=-1", "?since=99999999999999999999", "?follow=perhaps"} {
		if w := get(newMonitor(t, 1), query); w.Code != http.StatusBadRequest {
			t.Errorf("%s: answer %d %s", query, w.Code, w.Body)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	for _, n := range []int{-1, 0, 1_000_001} {
		if _, err := monitor.New(monitor.Config{Events: n}); err == nil {
			t.Errorf("%d events: no error", n)
		}
	}
}

// BenchmarkPublish is on the path of every ADD.
func BenchmarkPublish(b *testing.B) {
	m := newMonitor(b, 1000)
	for b.Loop() {
		m.Publish(v1.Event{})
	}
}

func newMonitor(t testing.TB, events int) *monitor.Monitor {
	t.Helper()
	m, err := monitor.New(monitor.Config{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// get answers one request without a socket.
func get(m *monitor.Monitor, query string) *httptest.ResponseRecorder {
	r, w := chi.NewRouter(), httptest.NewRecorder()
	m.Mount(r)
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events"+query, nil))
	return w
}

// connect follows the events of m, and reads none before the caller does.
func connect(t *testing.T, m *monitor.Monitor) *json.Decoder {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s, err := serve(socket, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return connectTo(t, socket)
}

func connectTo(t *testing.T, socket string) *json.Decoder {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// HTTP/1.0: the answer is not chunked.
	if _, err := io.WriteString(conn, "GET /v1/events?follow=true HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; {
		if line, err = body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return json.NewDecoder(body)
}
