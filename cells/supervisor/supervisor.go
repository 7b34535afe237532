package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
)

// Supervisor runs tasks. Its methods may be called concurrently.
type Supervisor struct {
	cfg       Config
	log       *slog.Logger
	barrier   *restored.Barrier
	tasks     []*task.Task
	reporters []HealthReporter
	serving   atomic.Bool

	stop       chan struct{} // closed by Stop
	watching   sync.WaitGroup
	background *httpx.Background // nil until Start, and when nothing is served
}

// New returns a supervisor that has not started. Two tasks of one name are an error, and a nil one is none.
func New(cfg Config, log *slog.Logger, barrier *restored.Barrier, tasks []*task.Task, reporters []HealthReporter) (*Supervisor, error) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t *task.Task) bool { return t == nil })
	slices.SortFunc(tasks, func(a, b *task.Task) int { return strings.Compare(a.Status().Name, b.Status().Name) })
	for i := range len(tasks) - 1 {
		if name := tasks[i].Status().Name; name == tasks[i+1].Status().Name {
			return nil, fmt.Errorf("two tasks are named %s", name)
		}
	}
	return &Supervisor{cfg: cfg, log: log, barrier: barrier, tasks: tasks, reporters: reporters, stop: make(chan struct{})}, cfg.Validate()
}

// Start has the tasks run as soon as everything is restored, and serves the agent's health. failed is called once, from
// another goroutine, when a task or the server has ended by itself.
func (s *Supervisor) Start(ctx context.Context, failed func(error)) error {
	if s.cfg.Address != "" {
		listener, err := httpx.Listen(ctx, "the agent's health", "health-address", s.cfg.Address)
		if err != nil {
			return err
		}
		s.background = httpx.Serve(&http.Server{
			Handler:           s.Handler(),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       5 * time.Second,
			WriteTimeout:      5 * time.Second,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}, listener, failed)
		s.log.Info("health served", "address", listener.Addr().String())
	}
	var once sync.Once
	for _, t := range s.tasks {
		t.Start(s.barrier.Done())
		s.watching.Go(func() {
			select {
			case err := <-t.Failed():
				once.Do(func() { failed(err) })
			case <-s.stop:
			}
		})
	}
	return nil
}

// Stop ends the tasks side by side, and waits for them as long as ctx lasts.
func (s *Supervisor) Stop(ctx context.Context) error {
	close(s.stop)
	s.watching.Wait()
	err := task.StopAll(ctx, s.tasks...)
	if s.background != nil {
		err = errors.Join(err, s.background.Stop(ctx))
	}
	return err
}

// Tasks returns what became of each task so far, by name.
func (s *Supervisor) Tasks() (all []task.Status) {
	for _, t := range s.tasks {
		all = append(all, t.Status())
	}
	return all
}

// Serving implements server.Watcher: from now on the agent is ready.
func (s *Supervisor) Serving() { s.serving.Store(true) }

// Stopping implements server.Watcher.
func (s *Supervisor) Stopping() { s.serving.Store(false) }

// Handler answers /livez and /readyz as a kubelet asks: 200 is good, 503 is not, and the body has a line for each cell.
func (s *Supervisor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, true) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.serving.Load()) })
	return mux
}

func (s *Supervisor) answer(w http.ResponseWriter, serves bool) {
	all := s.Conditions()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !serves || worst(all) == Failing {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if !serves {
		fmt.Fprintln(w, "the agent is starting or stopping")
	}
	for _, c := range all {
		fmt.Fprintln(w, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", c.Cell, c.State, c.Reason), ": "))
	}
}
