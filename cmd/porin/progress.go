package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// withProgress makes a call that reads the whole cluster. On a terminal it says after a second what the agent is at,
// and how long already, until the answer is there.
func withProgress[T any](s *session, what string, call func() (T, error)) (T, error) {
	stop := s.progress(what)
	defer stop()
	return call()
}

func (s *session) progress(what string) (stop func()) {
	if !s.terminal {
		return func() {}
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for seconds := 1; ; seconds++ {
			select {
			case <-ticker.C:
				_, _ = fmt.Fprintf(s.err, "\r%s: %ds", what, seconds)
			case <-stopped:
				if seconds > 1 {
					_, _ = fmt.Fprint(s.err, "\r\x1b[K") // clears the line
				}
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
