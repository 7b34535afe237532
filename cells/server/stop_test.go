package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"
)

type watcher struct{ seen []string }

func (w *watcher) Serving()  { w.seen = append(w.seen, "serving") }
func (w *watcher) Stopping() { w.seen = append(w.seen, "stopping") }

func TestWatchers(t *testing.T) {
	w := new(watcher)
	r := newRig(t, Parts{Watchers: []Watcher{w}})
	r.stop(t)
	r.stop(t) // does nothing
	if want := []string{"serving", "stopping"}; !slices.Equal(w.seen, want) {
		t.Errorf("heard %v, want %v", w.seen, want)
	}
}

func TestStopWaitsForRequests(t *testing.T) {
	running, finish := make(chan bool), make(chan bool)
	r := newRig(t, handle(http.MethodGet, "/", func(w http.ResponseWriter, _ *http.Request) {
		close(running)
		<-finish
		_, _ = w.Write([]byte("done"))
	}))
	answered := make(chan string, 1)
	go func() {
		_, _, text := r.do(t, http.MethodGet, "/", nil)
		answered <- text
	}()
	<-running
	stopped := make(chan bool)
	go func() {
		r.stop(t)
		close(stopped)
	}()
	waitRefused(t, r)
	select {
	case <-stopped:
		t.Error("Stop did not wait")
	default:
	}
	close(finish)
	if text := <-answered; text != "done" {
		t.Errorf("answer %q", text)
	}
	<-stopped
	checkLeft(t, r.cfg.Socket)
}

// waitRefused returns when the server accepts no more.
func waitRefused(t *testing.T, r *rig) {
	t.Helper()
	for {
		if _, err := listenerPID(t.Context(), r.cfg.Socket); err != nil {
			return
		}
	}
}

func TestStopTimeout(t *testing.T) {
	running, ended := make(chan bool), make(chan bool)
	r := newRig(t, handle(http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) {
		close(running)
		<-r.Context().Done()
		close(ended)
	}))
	go func() {
		<-running
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if err := r.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
	}()
	if answer, err := r.http.Get("http://porin/"); err == nil {
		_ = answer.Body.Close()
		t.Error("answered")
	}
	<-ended
}

func TestStopWithoutStart(t *testing.T) {
	if err := new(Server).Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
