package main

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress makes calls of several durations: only a person who waits for longer than a second is told.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		takes    time.Duration
		want     string
	}{
		{"short", true, 900 * time.Millisecond, ""},
		{"long", true, 2500 * time.Millisecond, "\rreading: 1s\rreading: 2s\r\x1b[K"},
		{"no terminal", false, 2500 * time.Millisecond, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var shown bytes.Buffer
				s := &session{environment: environment{err: &shown, terminal: c.terminal}}
				failure := errors.New("no answer")
				got, err := withProgress(s, "reading", func() (int, error) {
					time.Sleep(c.takes) // of a clock that does not wait
					return 7, failure
				})
				if got != 7 || !errors.Is(err, failure) {
					t.Errorf("the call returned %d, %v", got, err)
				}
				if shown.String() != c.want {
					t.Errorf("shown is %q, want %q", &shown, c.want)
				}
			})
		})
	}
}

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
